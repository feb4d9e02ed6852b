"""Which code made a promise: version, commit where it is known, and a digest of the sources themselves."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib import metadata
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


@cache
def code_digest() -> str:
    """SHA-256 over every source file of the package: it tells two working copies of one commit apart."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@cache
def code_commit() -> str:
    """The commit of the checkout the package lies in, or was installed from; `unknown` where neither can be found."""
    for folder in _PACKAGE.parents:
        # A worktree's .git is a file that says where the real one is.
        git = folder / ".git"
        if git.is_file():
            git = (folder / git.read_text().partition(":")[2].strip()).resolve()
        if git.is_dir():
            return _head_of(git) if (folder / "src" / _PACKAGE.name).resolve() == _PACKAGE.resolve() else "unknown"
    try:
        told = metadata.distribution("halfmask").read_text("direct_url.json")
        return str(json.loads(told or "{}").get("vcs_info", {}).get("commit_id", "unknown"))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return "unknown"


def _head_of(git: Path) -> str:
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head
        name = head.partition(":")[2].strip()
        common = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
        if (common / name).is_file():
            return (common / name).read_text().strip()
        packed = (common / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {name}")), "unknown")
    except OSError:
        return "unknown"
