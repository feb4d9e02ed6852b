"""`halfmask audit`: attack a trained model and its mechanism, and report what leaked beside what was promised."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from halfmask.cli.settings import OUTPUT_PANEL, DeviceOption, JsonOption, ThreadsOption, names, numbers, use_threads
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table


class _ModelByDefault(TyperGroup):
    """`halfmask audit RUN` means `halfmask audit model RUN`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            args = ["model", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    help="Attack a model, its mechanism, one of its steps, or a view; report what leaked beside what was promised.",
    cls=_ModelByDefault,
    no_args_is_help=True,
)
SeedOption = Annotated[int, typer.Option(min=0, help="Fixes the whole audit: the same seed gives the same numbers.")]
OutOption = Annotated[Path, typer.Option(help="Folder for the audit's file, picture and page.", rich_help_panel=OUTPUT_PANEL)]


@app.command("mechanism")
def mechanism(
    method: Annotated[str | None, typer.Option(help="Methods, with commas between. (default: all that add noise)")] = None,
    epsilon: Annotated[float, typer.Option(help="The ε that is claimed, at δ = 1e-6.")] = 1.0,
    seed: SeedOption = 0,
    out: OutOption = Path("audits"),
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send canaries through the real training step of each method, and check noise, clip, coins, views and divisor.

    Exits with code 1 if any attack proves more than was claimed, or any check fails. No data of yours is read.
    """
    from halfmask.audit.mechanism import audit_mechanism
    from halfmask.cli.console import Console, note, say

    use_threads(threads)
    body = audit_mechanism(None if method is None else names(method, "--method"), epsilon, seed, note)
    _finish(body, out, as_json)
    if not as_json:
        table = _table("method", "ε claimed", "proven at least", "checks", "result")
        for found in body["methods"]:
            entries = [*found["attacks"], *found["checks"]]
            passed = sum(entry["passed"] for entry in entries)
            verdict = "pass" if found["passed"] else "FAIL"
            table.add_row(found["method"], f"{epsilon:g}", f"{found['lower_bound']:.2f}", f"{passed} of {len(entries)}", verdict)
        Console().print(table)
        for found in body["methods"]:
            for attack in found["attacks"]:
                if not attack["passed"]:
                    said = attack["refused"] or f"proves ε ≥ {attack['lower_bound']:.2f}"
                    say(f"FAIL {found['method']}: {attack['name']}: {said}", "bold red")
            for check in found["checks"]:
                if not check["passed"]:
                    say(f"FAIL {found['method']}: {check['check']}: {check['found']}; expected {check['expected']}", "bold red")
        _closing(body, out)
    if not body["passed"]:
        raise typer.Exit(1)


@app.command("model")
def model(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    against: Annotated[
        Path | None, typer.Option(help="A non-private run of the same recipe to attack beside it. (default: one is trained)")
    ] = None,
    shadows: Annotated[int, typer.Option(min=0, help="Shadow models for the likelihood attack, each a training; 0 for none.")] = 4,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the findings. (default: RUN/audit for figures; private storage for real people)", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Attack a released model: can its members be told from strangers?

    Reads private people without noise: what it finds about real people is for the data holder, and is kept out of the run's folder.
    """
    from halfmask.audit.membership import audit_model
    from halfmask.cli.console import Console, note, say, warn
    from halfmask.training.runs import open_run

    use_threads(threads)
    trained = open_run(run, device)
    synthetic = trained.config.data.name == "figures"
    folder = _place(run, out, synthetic)
    if not synthetic:
        warn("this audit reads private people without noise; what it finds is for the data holder, not for release")
    other = None if against is None else open_run(against, device)
    body = audit_model(trained, other, shadows, seed, note)
    _finish(body, folder, as_json)
    if as_json:
        return
    table = _table("model", "attack", "AUC (95 %)", "caught at 1 % false alarms (95 %)")
    for result in body["results"]:
        for attack, found in result["attacks"].items():
            rate = found.get("tpr@0.01")
            caught = "too few strangers" if rate is None else f"{rate['value']:.1%} ({rate['low']:.1%} to {rate['high']:.1%})"
            auc = found["auc"]
            table.add_row(result["model"], attack, f"{auc['value']:.3f} ({auc['low']:.3f} to {auc['high']:.3f})", caught)
    Console().print(table)
    claim = body["epsilon_claimed"]
    say(f"promised: ε = {claim:g}, δ = {body['delta']:g}" if claim else "promised: nothing by noise")
    say("this run: chance is inside every interval" if body["at_chance"] else "this run: members and strangers are told apart")
    _closing(body, folder)


@app.command("inversion")
def inversion(
    epsilons: Annotated[str, typer.Option(help="Values of ε, with commas between.")] = "200,8,0.8",
    people: Annotated[int, typer.Option(min=1, help="How many people of `figures` to attack.")] = 3,
    seed: SeedOption = 0,
    out: OutOption = Path("audits"),
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Draw a person again from the update of one step, without privacy and at several ε; a picture shows the result."""
    from halfmask.audit.inversion import audit_inversion
    from halfmask.cli.console import Console, note

    use_threads(threads)
    body, picture = audit_inversion(numbers(epsilons, "--epsilons"), people, seed, note)
    _finish(body, out, as_json, picture)
    if as_json:
        return
    table = _table("release", "PSNR", "SSIM", "the same without the person")
    for column in body["columns"]:
        control = column["without_the_person"]
        beside = "—" if control is None else f"{control['psnr']:.1f} dB, {control['ssim']:.3f}"
        table.add_row(column["release"], f"{column['psnr']:.1f} dB", f"{column['ssim']:.3f}", beside)
    Console().print(table)
    _closing(body, out)


@app.command("view")
def view(
    view: Annotated[str | None, typer.Option(help="Views, with commas between, each at several strengths. (default: all)")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few people and little training: for trying the command, not for numbers.")
    ] = False,
    seed: SeedOption = 0,
    out: OutOption = Path("audits"),
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what ψ gives away of the embedded people: who it is, what the image was, and how much of the pose is left."""
    from halfmask.audit.views import QUICK, audit_views
    from halfmask.cli.console import Console, note
    from halfmask.report.audits import pose_against_identity

    use_threads(threads)
    body = audit_views(None if view is None else names(view, "--view"), QUICK if quick else None, seed, note)
    _finish(body, out, as_json, pose_against_identity(body))
    if as_json:
        return
    table = _table("view", "named right (95 %)", "restored PSNR", "PCKh@0.5 on views")
    for row in body["rows"]:
        who, restored = row["identity"], row.get("restored")
        table.add_row(
            f"{row['view']} {row['strength']}".strip(),
            f"{who['value']:.1%} ({who['low']:.1%} to {who['high']:.1%})",
            "—" if restored is None else f"{restored['psnr']:.1f} dB (view itself {row['view_itself']['psnr']:.1f})",
            f"{row['pose']['pckh@0.5']:.1f}" if "pose" in row else "—",
        )
    Console().print(table)
    _closing(body, out)


def _place(run: Path, out: Path | None, synthetic: bool) -> Path:
    """Where findings about members go: never beside what is released, unless nobody is real."""
    if out is None:
        if synthetic:
            return run / "audit"
        from halfmask.privacy.home import private_folder

        return private_folder("audits", run.resolve().name)
    if not synthetic and out.resolve().is_relative_to(run.resolve()):
        raise HalfmaskError(
            f"--out {out} is inside the run's folder, which is released, and the findings are about private people: choose another"
        )
    return out


def _finish(body: dict[str, Any], out: Path, as_json: bool, picture: np.ndarray | None = None) -> None:
    from halfmask.cli.console import say_json
    from halfmask.report.audits import write_audit

    write_audit(out, body, picture)
    if as_json:
        say_json(body)


def _closing(body: dict[str, Any], out: Path) -> None:
    from halfmask.cli.console import say

    say(f"how sure: {body['confidence']}")
    say("cannot see: " + "; ".join(body["cannot_see"]))
    if body.get("not_for_release"):
        say(f"not for release: {body['not_for_release']}", "yellow")
    say(f"page: {out / 'index.html'}")


def _table(first: str, *others: str) -> Table:
    from rich.table import Table

    table = Table()
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
