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
    """List every run on a dataset: when, where, by what method and at what ε; and the total, related datasets included."""
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
        named = ", ".join(book["names"])
        table = Table(title=f"dataset {book['dataset']}{f' ({named})' if named else ''}", title_justify="left")
        for heading in ("date", "run", "folder", "method", "unit", "ε", "σ", "steps", "reserved"):
            table.add_column(heading, justify="right" if heading in ("ε", "σ", "steps", "reserved") else "left", overflow="fold")
        for run in book["runs"]:
            sigma = f"{run['noise_multiplier']:.4g}" if run["noise_multiplier"] else "none"
            epsilon = "∞" if run["epsilon"] == "infinity" else f"{run['epsilon']:.4g}"
            row = (run["date"], run["run"], run["folder"] or "–", run["method"], run["unit"], epsilon, sigma, f"{run['steps']:,}")
            table.add_row(*row, f"{run['reserved']:,}" if run["reserved"] else "")
        Console().print(table)
        say(f"ε of each run by itself, at δ = {delta:g}, {adjacency}; its certificate has it at its own δ and by its own accountant")
        for run in book["runs"]:
            if run["unbounded"]:
                say(f"run {run['run']} has no bound: {run['unbounded']}", "yellow")
        if book["related"]:
            say(f"counted with it, because they show the same people: {', '.join(name[:12] for name in book['related'])}")
        total = "∞" if book["total"] == "infinity" else f"{book['total']:.4g}"
        say(f"total ε = {total} to one {book['unit']} at δ = {delta:g}, {adjacency} (PLD, as if all runs had been fixed in advance)")
        if book["no_bound"]:
            say(f"there is no bound: {book['no_bound']}", "yellow")
        for line in book["public"]:
            say(f"public for good: {line}")
        for epsilon, at in book["budgets"]:
            say(f"budget: ε = {epsilon:g} at δ = {at:g}")


@app.command("raise-budget")
def raise_budget(
    dataset: Annotated[str, typer.Argument(help="Fingerprint of a dataset (or the start of one), as in its certificates.")],
    epsilon: Annotated[float, typer.Option("--to", help="The ε that all runs together must stay within from now on.")],
    delta: Annotated[float, typer.Option(help="Its δ.")],
    reason: Annotated[str, typer.Option(help="Why: it is written into the ledger, and stays there.")],
) -> None:
    """Replace a dataset's budgets by another, larger or not, on the record. Without this the smallest ever set holds."""
    from halfmask.cli.console import say
    from halfmask.privacy.accounting import check_budget

    check_budget(epsilon, delta)
    if not reason.strip():
        raise HalfmaskError("--reason is empty: say why the budget may be raised, for whoever reads the ledger later")
    ledger = _one_ledger(dataset)
    before = ", ".join(f"ε = {eps:g} at δ = {at:g}" for eps, at in ledger.budgets()) or "none"
    ledger.write("raise", {"epsilon": epsilon, "delta": delta, "reason": reason.strip()})
    say(f"{ledger.dataset}: budget ε = {epsilon:g} at δ = {delta:g} (before: {before}), on the record with its reason")
    say("budgets of related datasets still hold: see 'halfmask ledger show'")


@app.command("release")
def release(
    dataset: Annotated[str, typer.Argument(help="Fingerprint of a dataset (or the start of one), as in its certificates.")],
    run: Annotated[str, typer.Argument(help="The run, as 'halfmask ledger show' names it.")],
) -> None:
    """Give back the steps that a stopped run has reserved and not taken. Should it go on, it must pass the budget again."""
    from halfmask.cli.console import say

    ledger = _one_ledger(dataset)
    unspent = ledger.release(run)
    if not unspent:
        raise HalfmaskError(f"run '{run}' has nothing reserved that it did not spend: see 'halfmask ledger show {dataset}'")
    say(f"{unspent:,} steps of {run} are given back")


@app.command()
def verify(dataset: DatasetArgument = None, as_json: JsonOption = False) -> None:
    """Check that no ledger was edited, reordered, cut, put back or deleted. Exits with code 2 if one was."""
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
    from halfmask.privacy.ledger import Ledger, ledger_names

    names = ledger_names()
    if dataset is not None:
        names = [name for name in names if name.startswith(dataset)]
        if not names:
            folder = private_folder("ledgers")
            raise HalfmaskError(f"no ledger of a dataset '{dataset}' in {folder}: see its fingerprint in a certificate")
    return [Ledger(name) for name in names]


def _one_ledger(dataset: str) -> Ledger:
    found = _ledgers(dataset)
    if len(found) > 1:
        raise HalfmaskError(f"'{dataset}' is the start of {len(found)} fingerprints: give more of it")
    return found[0]


def _summary(ledger: Ledger, delta: float, adjacency: Any) -> dict[str, Any]:
    from halfmask.privacy.account import account_of
    from halfmask.privacy.spends import Spend, common_unit, no_bound, plans_of, total_epsilon

    account = account_of(ledger)
    named = {line["run"]: line for line in ledger.lines("run")}
    runs: dict[str, dict[str, Any]] = {}
    paid: dict[str, list[Spend]] = {}
    for line in ledger.lines("spend"):
        spend = Spend.from_json(line)
        fields = ("run", "method", "unit", "noise_multiplier", "sampling_rate", "clip_norm", "unbounded")
        about = named.get(spend.run, {})
        where = {"dataset": about.get("dataset", ""), "folder": about.get("folder", ""), "date": line["time"][:10]}
        fresh = {name: getattr(spend, name) for name in fields} | where | {"steps": 0, "reserved": 0}
        run = runs.setdefault(spend.run, fresh)
        run["steps"] += spend.steps
        paid.setdefault(spend.run, []).append(spend)
    # Runs of a sweep differ in their seed or clip norm alone, and cost the same: an accountant takes a second for each.
    costs: dict[Any, float] = {}
    for name, run in runs.items():
        run["reserved"] = max(0, ledger.reserved(name) - run["steps"])
        plans = (no_bound(paid[name]), *([] if no_bound(paid[name]) else plans_of(paid[name], adjacency)))
        if plans not in costs:
            costs[plans] = total_epsilon(paid[name], delta, adjacency)
        run["epsilon"] = costs[plans] if costs[plans] < float("inf") else "infinity"
    spends = account.spends() if account is not None else ledger.spends()
    total = total_epsilon(spends, delta, adjacency) if account is None else account.total(delta, adjacency)
    return {
        "dataset": ledger.dataset,
        "names": list(dict.fromkeys(line["dataset"] for line in named.values())),
        "runs": list(runs.values()),
        "related": account.related_names if account is not None else [],
        "total": total if total < float("inf") else "infinity",
        "unit": common_unit(spends) or "unit",
        "no_bound": no_bound(spends) or ("" if account is None else account.missed(adjacency)),
        "delta": delta,
        "public": account.publications() if account is not None else [],
        "budgets": ledger.budgets(),
    }
