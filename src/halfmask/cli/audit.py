"""`halfmask audit`: attack a trained model and its mechanism, and report what leaked beside what was promised."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from halfmask.cli.settings import OUTPUT_PANEL, DeviceOption, JsonOption, ThreadsOption, names, numbers, use_threads
from halfmask.cli.tradeoff import tradeoff
from halfmask.errors import HalfmaskError

if TYPE_CHECKING:
    import numpy as np

    from halfmask.training.runs import TrainedRun


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
app.command("tradeoff")(tradeoff)
SeedOption = Annotated[int, typer.Option(min=0, help="Fixes the whole audit: the same seed gives the same numbers.")]
OutOption = Annotated[Path, typer.Option(help="Folder for the audit's file, picture and page.", rich_help_panel=OUTPUT_PANEL)]

FindingsOption = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the findings. (default: RUN/audit for figures; private storage for real people)", rich_help_panel=OUTPUT_PANEL
    ),
]


@app.command("mechanism")
def mechanism(
    run: Annotated[
        Path | None, typer.Argument(help="The folder of a run, to try its own loss and network in place of canaries.", show_default=False)
    ] = None,
    method: Annotated[str | None, typer.Option(help="Methods, with commas between. (default: all that add noise)")] = None,
    epsilon: Annotated[float, typer.Option(help="The ε that is claimed, at δ = 1e-6.")] = 1.0,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Audit with an option: private.residual, private.follow, subspace.project_first, noise_sum_of_four. May be repeated.",
        ),
    ] = None,
    seed: SeedOption = 0,
    out: OutOption = Path("audits"),
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send canaries through the real training step of each method, and check noise, clip, coins, views and divisor.

    With a run: take real steps with its task's own loss and network, on noise in the shape of its records; and check its masks, if any.

    Exits with code 1 if any attack proves more than was claimed, or any check fails. No data of yours is read.
    """
    from halfmask.audit.mechanism import audit_mechanism
    from halfmask.audit.own import audit_run
    from halfmask.cli.console import note
    from halfmask.training.runs import open_run

    use_threads(threads)
    if run is not None:
        if method is not None or assignments:
            raise HalfmaskError("--method and --set choose what canaries go through: with a run, its own loss and network are tried")
        _finish(audit_run(open_run(run, "cpu"), seed), out, as_json)
        return
    _finish(audit_mechanism(None if method is None else names(method, "--method"), epsilon, seed, note, assignments or ()), out, as_json)


@app.command("masks")
def masks(
    recipe: Annotated[str, typer.Argument(help="A recipe of task action, by name or file.")] = "action/figures",
    assignments: Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change a setting. May be repeated.")] = None,
    seed: SeedOption = 0,
    out: OutOption = Path("audits"),
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change stored pixels of clips of noise: what is protected must have no part in the public half, and absent tokens in nothing.

    Exits with code 1 if any check fails. No data of yours is read. A run's own network is tried with `halfmask audit mechanism RUN`.
    """
    from halfmask.audit.masks import audit_recipe
    from halfmask.training.config import build_config, load_recipe

    use_threads(threads)
    _finish(audit_recipe(build_config(load_recipe(recipe), {}, assignments or []), seed), out, as_json)


@app.command("model")
def model(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    against: Annotated[
        Path | None, typer.Option(help="A non-private run of the same recipe to attack beside it. (default: one is trained)")
    ] = None,
    shadows: Annotated[int, typer.Option(min=0, help="Shadow models for the likelihood attack, each a training; 0 for none.")] = 4,
    canaries: Annotated[
        int, typer.Option(min=0, help="Plant so many mislabelled people by fair coins instead, train anew, and look for them in the model.")
    ] = 0,
    spend: Annotated[
        bool, typer.Option("--spend", help="Pay for training on real people with canaries out of their ledger; 'figures' cost nothing.")
    ] = False,
    seed: SeedOption = 0,
    out: FindingsOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Attack a released model: can its members be told from strangers? With --canaries: can people planted for the purpose be found?

    Reads private people without noise: what it finds about real people is for the data holder, and is kept out of the run's folder.
    """
    from halfmask.audit.membership import audit_model
    from halfmask.audit.planted import audit_planted
    from halfmask.cli.console import note
    from halfmask.training.runs import open_run

    use_threads(threads)
    trained, folder = _opened(run, out, device)
    if canaries:
        body, picture = audit_planted(trained, canaries, seed, spend, note)
        _finish(body, folder, as_json, picture)
        return
    other = None if against is None else open_run(against, device)
    _finish(audit_model(trained, other, shadows, seed, note), folder, as_json)


@app.command("identity")
def identity(
    run: Annotated[Path, typer.Argument(help="The folder of a run whose dataset says who is who.")],
    seed: SeedOption = 0,
    out: FindingsOption = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Name people by a released network's features: does it know its members better than strangers, beyond its public start?

    Reads private people without noise: what it finds about real people is for the data holder, and is kept out of the run's folder.
    """
    from halfmask.audit.identity import audit_identity
    from halfmask.cli.console import note

    use_threads(threads)
    trained, folder = _opened(run, out, device)
    _finish(audit_identity(trained, seed, note), folder, as_json)


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
    from halfmask.cli.console import note

    use_threads(threads)
    body, picture = audit_inversion(numbers(epsilons, "--epsilons"), people, seed, note)
    _finish(body, out, as_json, picture)


@app.command("view")
def view(
    view: Annotated[str | None, typer.Option(help="Views, with commas between, each at several strengths. (default: all)")] = None,
    data: Annotated[
        str | None,
        typer.Option(
            help="A dataset of yours whose private people have subject ids: a folder, or a name below $HALFMASK_DATA. (default: figures)"
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A few people and little training: for trying the command, not for numbers.")
    ] = False,
    runs: Annotated[
        int, typer.Option(min=1, help="Train every network so often, from seeds that follow on, and tell mean and spread.")
    ] = 1,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the audit's file, picture and page. (default: audits for figures; private storage for real people)",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what ψ gives away: who it is, what the image was, and, of the embedded people, how much of the pose is left.

    With --data it reads your private people without noise: what it finds is for the data holder, and nothing of it is a run's.
    """
    from halfmask.audit.own_people import own_people
    from halfmask.audit.views import QUICK, Effort, audit_views
    from halfmask.cli.console import TerminalProgress, note, warn
    from halfmask.privacy.home import private_folder
    from halfmask.report.audits import pose_against_identity

    use_threads(threads)
    chosen = None if view is None else names(view, "--view")
    effort = QUICK if quick else Effort()
    if data in (None, "figures"):
        body = audit_views(chosen, effort, seed, note, runs)
        _finish(body, out or Path("audits"), as_json, pose_against_identity(body))
        return
    warn("this audit reads private people; what it finds is for the data holder, not for release")
    with TerminalProgress() as progress:
        people = own_people(str(data), effort.subjects, effort.crops, progress.stage)
    dataset = Path(str(data)).resolve().name
    place = out or private_folder("audits", f"view-{dataset}")
    _finish(audit_views(chosen, effort, seed, note, runs, people, dataset), place, as_json)


def _opened(run: Path, out: Path | None, device: str | None) -> tuple[TrainedRun, Path]:
    """A run to attack, and where the findings go: refused, if they may not go there, before anybody is read."""
    from halfmask.cli.console import warn
    from halfmask.training.runs import open_run

    trained = open_run(run, device)
    synthetic = trained.config.data.name == "figures"
    folder = _place(run, out, synthetic)
    if not synthetic:
        warn("this audit reads private people; what it finds is for the data holder, not for release")
    return trained, folder


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
    """Write the audit down and show it; exit with code 1 if it refutes a promise."""
    from halfmask.cli.console import say_json
    from halfmask.report.audits import write_audit

    write_audit(out, body, picture)
    if as_json:
        say_json(body)
    else:
        _show(body, out)
    if not body.get("passed", True):
        raise typer.Exit(1)


def _show(body: dict[str, Any], out: Path) -> None:
    from rich.table import Table

    from halfmask.cli.console import Console, say
    from halfmask.report.audit_tables import summary

    found = summary(body)
    table = Table()
    for number, name in enumerate(found.head):
        table.add_column(name, justify="right" if number else "left")
    for row in found.rows:
        table.add_row(*row)
    Console().print(table)
    for line in found.lines:
        say(line)
    for line in found.failures:
        say(f"FAIL {line}", "bold red")
    say(f"how sure: {body['confidence']}")
    say("cannot see: " + "; ".join(body["cannot_see"]))
    if body.get("not_for_release"):
        say(f"not for release: {body['not_for_release']}", "yellow")
    say(f"page: {out / 'index.html'}")
