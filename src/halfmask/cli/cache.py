"""`halfmask cache`: what private data is kept on this machine, and deleting what can be computed again."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from halfmask.cli.settings import JsonOption
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from halfmask.data.storage import Cleared, Stored

app = typer.Typer(help="Private data kept on this machine.", no_args_is_help=True)


@app.command()
def show(as_json: JsonOption = False) -> None:
    """Say what private data lies where below $HALFMASK_HOME, how much of it there is, and since when."""
    from rich.table import Table

    from halfmask.cli.console import Console, say, say_json
    from halfmask.data.storage import day, drafts_waiting, stored
    from halfmask.privacy.home import home

    kinds, (drafts, drafted) = stored(), drafts_waiting()
    if as_json:
        found = {"home": str(home()), "kinds": [kind.to_json() for kind in kinds], "drafts": {"entries": drafts, "bytes": drafted}}
        say_json(found | {"bytes": sum(kind.bytes for kind in kinds) + drafted})
        return
    say(f"private storage: {home()}")
    table = Table()
    for heading in ("Kind", "Entries", "Size", "Oldest", "Newest", "Cleared"):
        table.add_column(heading, justify="right" if heading in ("Entries", "Size") else "left")
    for kind in kinds:
        dates = ((day(moment) or "–")[:10] for moment in (kind.oldest, kind.newest))
        cleared = "never" if kind.kept else "by name" if kind.only_by_name else "yes"
        table.add_row(kind.kind, f"{kind.entries:,}", size(kind.bytes), *dates, cleared)
    Console().print(table)
    if drafts:
        say(f"half-written drafts: {drafts:,}, {size(drafted)}; 'halfmask cache clear' removes those whose writer died")
    for kind in kinds:
        say(f"{kind.kind}: {kind.holds}: {kind.place}")


@app.command()
def clear(
    kinds: Annotated[list[str] | None, typer.Argument(metavar="[KIND]…", help="What to delete, as 'show' names it. (default: all)")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete what can be computed again from the data. Ledgers, keys and whom they are about stay.

    Runs that are going on are not harmed: on Linux a file stays readable for the process that has it open. A file is
    unlinked, not overwritten; where the disk may fall into other hands, encrypt it.
    """
    from halfmask.cli.console import note, say_json
    from halfmask.data.storage import chosen, drafts_waiting, stored
    from halfmask.data.storage import clear as delete

    wanted = [kind for kind in chosen(stored(), kinds or ()) if kind.entries]
    if not wanted and not drafts_waiting()[0]:
        note("there is nothing to delete")
    elif not yes and not _agreed(wanted):
        note("nothing was deleted")
        return
    cleared = delete(kinds or ())
    if as_json:
        say_json(
            {
                "deleted": {kind: {"entries": entries, "bytes": freed} for kind, (entries, freed) in cleared.deleted.items()},
                "drafts": {"entries": cleared.drafts[0], "bytes": cleared.drafts[1], "left": cleared.fresh_drafts},
                "left": cleared.left,
            }
        )
    else:
        _tell(cleared)


def _agreed(wanted: list[Stored]) -> bool:
    what = ", ".join(f"{kind.entries:,} of {kind.kind} ({size(kind.bytes)})" for kind in wanted) or "stale drafts"
    if not sys.stdin.isatty():
        raise HalfmaskError(f"this would delete {what}, and nobody is there to be asked: add --yes")
    return typer.confirm(f"delete {what}?", err=True)


def _tell(cleared: Cleared) -> None:
    from halfmask.cli.console import say

    for kind, (entries, freed) in cleared.deleted.items():
        say(f"deleted {entries:,} of {kind}, {size(freed)}")
    drafts, freed = cleared.drafts
    if drafts:
        say(f"deleted {drafts:,} stale drafts, {size(freed)}")
    if cleared.fresh_drafts:
        say(f"left {cleared.fresh_drafts:,} drafts: written to within the last hour, perhaps by a run that is going on")
    for kind, reason in cleared.left.items():
        say(f"left {kind}: {reason}")
    if any(entries for entries, _ in cleared.deleted.values()):
        say("a run that has deleted arrays open goes on with them; their space is free when it ends")


def size(count: int) -> str:
    """Bytes as people say them."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:,.0f} {unit}" if unit == "bytes" or amount >= 10 else f"{amount:.1f} {unit}"
