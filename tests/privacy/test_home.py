"""Private storage: nobody else reads it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from halfmask.errors import HalfmaskError
from halfmask.privacy.home import home, home_path, private_folder, shut


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def careless() -> Iterator[None]:
    """Whoever makes a folder now lets everybody in."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_home_is_where_the_environment_says_and_closed_to_others(fresh_home: Path) -> None:
    assert home() == fresh_home
    assert stat.S_IMODE(fresh_home.stat().st_mode) & 0o077 == 0


def test_folders_below_are_closed_too(fresh_home: Path) -> None:
    folder = private_folder("a", "b")
    assert folder == fresh_home / "a" / "b" and folder.is_dir()
    assert stat.S_IMODE(folder.stat().st_mode) & 0o077 == 0


def test_every_folder_on_the_way_is_closed(fresh_home: Path, careless: None) -> None:
    private_folder("a", "b", "c")
    assert [mode(path) for path in (fresh_home, fresh_home / "a", fresh_home / "a/b", fresh_home / "a/b/c")] == [0o700] * 4


@pytest.mark.parametrize("found", [0o755, 0o750, 0o701, 0o777])
def test_a_home_that_was_open_is_closed(fresh_home: Path, careless: None, found: int) -> None:
    (fresh_home / "ledgers").mkdir(parents=True)
    for path in (fresh_home, fresh_home / "ledgers"):
        path.chmod(found)
    assert home() == fresh_home and mode(fresh_home) == 0o700 and mode(fresh_home / "ledgers") == found
    assert private_folder("ledgers") == fresh_home / "ledgers" and mode(fresh_home / "ledgers") == 0o700


def test_a_closed_home_is_left_as_it_is(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_folder("a")
    monkeypatch.setattr(Path, "chmod", lambda *a: pytest.fail("there was nothing to close"))
    private_folder("a")


@pytest.mark.parametrize("inner", [False, True])
def test_an_open_folder_of_somebody_else_is_refused(fresh_home: Path, monkeypatch: pytest.MonkeyPatch, inner: bool) -> None:
    private_folder("a")
    theirs = fresh_home / "a" if inner else fresh_home
    theirs.chmod(0o755)
    monkeypatch.setattr(os, "getuid", lambda: theirs.stat().st_uid + 1)
    with pytest.raises(HalfmaskError, match=r"mode 0755.*chmod 700.*HALFMASK_HOME"):
        private_folder("a")
    assert mode(theirs) == 0o755
    theirs.chmod(0o700)
    private_folder("a")


def test_a_folder_that_cannot_be_closed_is_refused(fresh_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home().chmod(0o755)

    def refuse(path: Path, wanted: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(HalfmaskError, match="cannot be closed: Operation not permitted"):
        home()


@pytest.mark.parametrize("where", ["home", "home/inside", "home/inside/deeper"])
def test_a_home_that_cannot_be_made_is_one_line(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file")
    monkeypatch.setenv("HALFMASK_HOME", str(tmp_path / where))
    with pytest.raises(HalfmaskError, match=r"no such folder can be made.*set HALFMASK_HOME"):
        private_folder("ledgers")


def test_private_storage_can_be_shut(fresh_home: Path) -> None:
    """What is shown to others is made without it, whatever asks for it."""
    with shut():
        for ask in (home, lambda: private_folder("ledgers")):
            with pytest.raises(HalfmaskError, match="private data"):
                ask()
        assert home_path() == fresh_home and not fresh_home.exists()
    assert home().is_dir()
