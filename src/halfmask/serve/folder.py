"""The folder that is served: which runs lie in it, and which of their files may be read.

Only files that a run or a comparison releases are read, by their names (see `halfmask.training.outputs`). Private storage
(`$HALFMASK_HOME`), unsafe diagnostics, checkpoints and audits that are not for release are not, wherever they lie. A link that leads out
of the folder is not followed, and a run that holds one, or a pipe, is left out whole, because whoever reads the run would follow it.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from halfmask.errors import HalfmaskError
from halfmask.privacy.home import home_path
from halfmask.serve.answers import Refused

_TEXT, _JSON, _PICTURE = "text/plain; charset=utf-8", "application/json", "image/png"
# What a run releases, and what a comparison makes of runs. Pages are not among them: a script in one would run as ours.
RUN_FILES = {
    "config.yaml": _TEXT,
    "log.jsonl": _TEXT,
    "metrics.json": _JSON,
    "certificate.json": _JSON,
    "certificate.md": _TEXT,
    "certificate.pdf": "application/pdf",
    "model_card.md": _TEXT,
}
SWEEP_FILES = {"results.json": _JSON, "results.csv": _TEXT, "overlays.png": _PICTURE, "accuracy.png": _PICTURE}
_LARGEST = 64 * 2**20
# A folder of sweeps of runs, and some room; further down, and beyond so many folders, nobody looks.
_DEEPEST, _MOST = 5, 5000


class ServedFolder:
    """A folder of runs, or of one run, from which nothing else can be read."""

    def __init__(self, root: Path):
        if not root.is_dir():
            raise HalfmaskError(f"no folder at {root}: give the one that holds your runs, such as 'runs'")
        self.root = root.resolve()
        self.home = home_path().resolve()
        if self.root.is_relative_to(self.home):
            raise HalfmaskError(f"{root} lies in Halfmask's private storage ({self.home}), which is never shown: give a folder of runs")

    def runs(self) -> dict[str, Path]:
        """Run folders by their names, which are their places below the folder served."""
        return self.scan()[0]

    def scan(self) -> tuple[dict[str, Path], list[str]]:
        """The runs, and the names of those that are left out because something in them leads out."""
        shown: dict[str, Path] = {}
        left_out = []
        for path in self._run_folders():
            if self.leads_out(path):
                left_out.append(self.name_of(path))
            else:
                shown[self.name_of(path)] = path
        return shown, left_out

    def name_of(self, run: Path) -> str:
        """What a run is called here."""
        return run.name if run == self.root else run.relative_to(self.root).as_posix()

    def _run_folders(self) -> Iterator[Path]:
        for place, folders, files in itertools.islice(os.walk(self.root), _MOST):
            path = Path(place)
            if "config.yaml" in files:
                yield path
                folders.clear()
            deep = len(path.relative_to(self.root).parts) >= _DEEPEST
            kept = [] if deep else [name for name in folders if not self._is_closed(path / name)]
            folders[:] = sorted(kept)

    def leads_out(self, folder: Path) -> bool:
        """Whether anything below is a link to somewhere else, or no ordinary file: a pipe would keep its reader waiting."""
        for place, folders, files in os.walk(folder):
            for path in (Path(place) / name for name in (*folders, *files)):
                if path.is_symlink() and not self._is_inside(path):
                    return True
                if path.name in files and path.exists() and not path.is_file():
                    return True
        return False

    @property
    def holds_private_storage(self) -> bool:
        """Whether Halfmask's home lies somewhere below."""
        return self.home.is_relative_to(self.root)

    def read(self, name: str) -> tuple[bytes, str]:
        """A released file by its place below the folder, and what kind of file it is; anything else is as if it were not there."""
        absent = Refused(404, "there is no such file among those that runs release")
        given = Path(name)
        path = self.root / given
        if given.is_absolute() or not name.isprintable() or ".." in given.parts or not self._is_inside(path):
            raise absent
        kind = SWEEP_FILES.get(given.name) if (path.parent / "results.json").is_file() else None
        if path.parent.resolve() in set(self._run_folders()):
            kind = RUN_FILES.get(given.name, kind)
        # A link may go by a released name and lead to another file of the folder.
        if kind is None or path.resolve().name != given.name:
            raise absent
        return _bytes_of(path.resolve(), absent), kind

    def _is_inside(self, path: Path) -> bool:
        try:
            real = path.resolve()
        except (OSError, RuntimeError, ValueError):  # a circle of links, a name that is none
            return False
        return real.is_relative_to(self.root) and not real.is_relative_to(self.home)

    def _is_closed(self, path: Path) -> bool:
        return path.name.startswith(".") or path.resolve() == self.home


def _bytes_of(path: Path, absent: Refused) -> bytes:
    """An ordinary file's content; a link or a pipe put there since is neither followed nor waited for."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError):
        raise absent from None
    with os.fdopen(number, "rb") as file:
        status = os.fstat(number)
        if not stat.S_ISREG(status.st_mode):
            raise absent
        if status.st_size > _LARGEST:
            raise Refused(413, "the file is larger than what is shown here: open it where it lies")
        return file.read(_LARGEST)
