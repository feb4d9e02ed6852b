"""`halfmask ledger`: what was spent on each dataset, and whether the record of it is intact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmask.cli.settings import JsonOption
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    from halfmask.privacy.ledger import Ledger

app = typer.Typer(help="What was spent on each dataset.", no_args_is_help=True)

DatasetArgument = Annotated[
    str | None,
    typer.Argument(help="Fingerprint of a dataset (or the start of one), as in its certificates. (default: all)"),
]


@app.command()
def show(
    dataset: DatasetArgument = None,
    delta: Annotated[float, typer.Option(help="The δ to compute totals at.")] = 1e-5,
    adjacency: Annotated[str, typer.Option(help="zero-out, replace-one or add-remove.")] = "zero-out",
    as_json: JsonOption = False,
) -> None:
    """List every run on a dataset, what it paid for, and the total."""
    from rich.table import Table

    from halfmask.cli.console import Console, say, say_json
    from halfmask.privacy.adjacency import Adjacency

    relation = Adjacency.parse(adjacency)
    books = [_summary(ledger, delta, relation) for ledger in _ledgers(dataset)]
    if as_json:
        say_json(books)
        return
    if not books:
        say("no ledger yet: nothing was spent on any dataset here")
    for book in books:
        table = Table(title=f"dataset {book['dataset']}", title_justify="left")
        for heading in ("run", "method", "unit", "σ", "q", "steps", "C"):
            table.add_column(heading, justify="left" if heading in ("run", "method", "unit") else "right")
        for run in book["runs"]:
            sigma = f"{run['noise_multiplier']:.4g}" if run["noise_multiplier"] else "none"
            table.add_row(
                run["run"], run["method"], run["unit"], sigma, f"{run['sampling_rate']:.4g}", f"{run['steps']:,}", f"{run['clip_norm']:g}"
            )
        Console().print(table)
        total = "∞" if book["total"] == "infinity" else f"{book['total']:.4g}"
        say(f"total ε = {total} at δ = {delta:g}, {adjacency} (PLD, as if all runs had been fixed in advance)")
        if book["budget"] is not None:
            say(f"budget: ε = {book['budget'][0]:g} at δ = {book['budget'][1]:g} (enforced with an RDP filter)")


@app.command()
def verify(dataset: DatasetArgument = None, as_json: JsonOption = False) -> None:
    """Check that no ledger was edited, reordered or cut. Exits with code 2 if one was."""
    from halfmask.cli.console import fail, say, say_json

    results: list[dict[str, Any]] = []
    for ledger in _ledgers(dataset):
        try:
            results.append({"dataset": ledger.dataset, "intact": True, "lines": ledger.verify()})
        except HalfmaskError as error:
            results.append({"dataset": ledger.dataset, "intact": False, "problem": str(error)})
    if as_json:
        say_json(results)
    for result in results:
        if not result["intact"]:
            fail(result["problem"])
        elif not as_json:
            say(f"{result['dataset']}: {result['lines']} lines, intact")
    if not all(result["intact"] for result in results):
        raise typer.Exit(2)


def _ledgers(dataset: str | None) -> list[Ledger]:
    from halfmask.privacy.home import private_folder
    from halfmask.privacy.ledger import Ledger

    folder = private_folder("ledgers")
    names = sorted({path.stem for pattern in ("*.jsonl", "*.head") for path in folder.glob(pattern)})
    if dataset is not None:
        names = [name for name in names if name.startswith(dataset)]
        if not names:
            raise HalfmaskError(f"no ledger of a dataset '{dataset}' in {folder}: see its fingerprint in a certificate")
    return [Ledger(name) for name in names]


def _summary(ledger: Ledger, delta: float, adjacency: Any) -> dict[str, Any]:
    from halfmask.privacy.ledger import total_epsilon

    spends = ledger.spends()
    runs: dict[str, dict[str, Any]] = {}
    for spend in spends:
        fields = ("run", "method", "unit", "noise_multiplier", "sampling_rate", "clip_norm")
        run = runs.setdefault(spend.run, {name: getattr(spend, name) for name in fields} | {"steps": 0})
        run["steps"] += spend.steps
    total = total_epsilon(spends, delta, adjacency)
    return {
        "dataset": ledger.dataset,
        "runs": list(runs.values()),
        "total": total if total < float("inf") else "infinity",
        "delta": delta,
        "budget": ledger.budget(),
    }
