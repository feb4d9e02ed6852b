"""AIRTLab's acted violence: `violent/` and `non-violent/`, each with `cam1/N.mp4` and `cam2/N.mp4`, and the actions in two CSV files.

Both cameras show one performance, so `cam1/N` and `cam2/N` are one `video`, and one group: a split between them would test on what was
learnt. Actors are not named, and take part in several performances: no unit of this dataset protects a person.

A clip's label is `violent` or `non-violent`. With `label="action"` it is what is done in it, and clips in which several things are done are
left out: any one of them would be as right as another, and would be scored as wrong.
"""

from __future__ import annotations

from pathlib import Path

from halfmask.data.clips import ClipSet, Take
from halfmask.data.files import BadAnnotations, where_named
from halfmask.data.video import VideoFile
from halfmask.data.video_sets.finding import clip_set, find_list, read_lines, refuse_odd, videos_below
from halfmask.errors import HalfmaskError, unknown_name

LABELS = ("violence", "action")
_KINDS = {"non-violent": "nonviolent-action-classes.csv", "violent": "violent-action-classes.csv"}
_CAMERAS = ("cam1", "cam2")


def detect_airtlab(folder: Path) -> bool:
    """Whether the folder is of this format."""
    return _root(folder) is not None


def read_airtlab_actions(folder: Path) -> ClipSet:
    """The clips by what is done in them."""
    return read_airtlab(folder, "action")


def read_airtlab(folder: Path, label: str = "violence") -> ClipSet:
    """The clips of a folder; none is opened.

    Args:
        label: what a clip is called: `violence` for violent or non-violent, or `action` for what is done in it.
    """
    if label not in LABELS:
        raise unknown_name("label of airtlab", label, LABELS)
    root = _root(folder)
    if root is None:
        raise HalfmaskError(f"{folder} is no copy of AIRTLab's dataset: expected 'violent' and 'non-violent' with 'cam1', 'cam2'")
    takes: list[Take] = []
    odd: list[str] = []
    unlabelled: list[str] = []
    total = 0
    for kind in _KINDS:
        actions = _actions(root, kind) if label == "action" else {}
        for camera in _CAMERAS:
            for path in videos_below(root / kind / camera):
                total += 1
                name = f"{kind}/{camera}/{path.name}"
                if not path.stem.isdecimal() or path.parent != root / kind / camera:
                    odd.append(name)
                elif label == "action" and path.stem not in actions:
                    unlabelled.append(name)
                elif label != "action" or len(actions[path.stem]) == 1:
                    performance = f"{kind}/{int(path.stem)}"
                    shown = actions[path.stem][0] if label == "action" else kind
                    takes.append(Take(name, shown, VideoFile(path), performance, group=performance))
    refuse_odd(folder, odd, total, "clips are not named N.mp4")
    if unlabelled:
        raise BadAnnotations(
            f"{folder}: {len(unlabelled):,} of {total:,} clips are in no row of the files of action classes: add rows for them, or remove "
            f"them ({where_named(folder)})",
            [f"{name}: no action" for name in unlabelled],
        )
    return clip_set("airtlab" if label == "violence" else "airtlab-actions", folder, takes, tuple(_KINDS) if label == "violence" else None)


def _root(folder: Path) -> Path | None:
    """The folder itself, or the one that the download unpacks to."""
    places = (folder, folder / "violence-detection-dataset")
    return next((place for place in places if all((place / kind / _CAMERAS[0]).is_dir() for kind in _KINDS)), None)


def _actions(root: Path, kind: str) -> dict[str, tuple[str, ...]]:
    """By a performance's number, what is done in it."""
    path = find_list(root, _KINDS[kind])
    if path is None:
        raise HalfmaskError(f"{root} has no {_KINDS[kind]}, which says what is done in its clips: download it, or learn violence alone")
    rows = [line.partition(";") for line in read_lines(path)[1:]]
    found = {name.strip().removesuffix(".mp4"): tuple(word.strip() for word in words.split(",") if word.strip()) for name, _, words in rows}
    if not all(found.values()):
        raise HalfmaskError(f"{path} has rows that are not 'N.mp4;action,action': mend it, or download it again")
    return found
