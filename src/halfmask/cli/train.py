"""`halfmask train`: one run, from a recipe to a certificate."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from halfmask.cli.settings import (
    DEFAULT_RECIPES,
    OUTPUT_PANEL,
    RUN_PANEL,
    DeviceOption,
    JsonOption,
    SetOption,
    ThreadsOption,
    default_folder,
    recipe_for,
    resolve,
    use_threads,
)
from halfmask.errors import HalfmaskError

_PRIVACY, _TRAINING = "Privacy", "Training"
PROCESSES_PANEL = "Several processes (docs/clusters.md)"


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(help=f"Name (see 'halfmask recipes') or path of a recipe. (default: {DEFAULT_RECIPES})"),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="dpsgd, projected, feature, feature-projective, for clips masked, or for comparison public-only, non-private.",
            rich_help_panel=_PRIVACY,
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="The privacy loss ε to stay within.", rich_help_panel=_PRIVACY)] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="The probability δ with which ε may fail; well below 1/N.", rich_help_panel=_PRIVACY),
    ] = None,
    clip: Annotated[float | None, typer.Option(help="Clip norm C of a unit's gradient.", rich_help_panel=_PRIVACY)] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(help="What is hidden about a unit: zero-out, replace-one or add-remove.", rich_help_panel=_PRIVACY),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(help="What is protected: crop (of faces: region), image or subject.", rich_help_panel=_PRIVACY),
    ] = None,
    accountant: Annotated[str | None, typer.Option(help="pld (tighter) or rdp.", rich_help_panel=_PRIVACY)] = None,
    budget: Annotated[
        float | None,
        typer.Option(help="Bind all runs on this dataset, now and later, to this ε together.", rich_help_panel=_PRIVACY),
    ] = None,
    unsafe_diagnostics: Annotated[
        bool,
        typer.Option(
            "--unsafe-diagnostics",
            help="For debugging: write private losses and gradient norms down. The certificate then says ε = ∞.",
            rich_help_panel=_PRIVACY,
        ),
    ] = False,
    even_so: Annotated[
        bool,
        typer.Option("--even-so", help="Go on where the noise would bury all that could be learnt.", rich_help_panel=_PRIVACY),
    ] = False,
    strategy: Annotated[
        str | None,
        typer.Option(help="Which weights train: finetune, top, full or scratch.", rich_help_panel=_TRAINING),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(help="How often each unit is expected to be read.", rich_help_panel=_TRAINING),
    ] = None,
    batch: Annotated[int | None, typer.Option(help="Expected number of units in a step.", rich_help_panel=_TRAINING)] = None,
    data: Annotated[
        str | None,
        typer.Option(help="'figures', a dataset folder, or a name below $HALFMASK_DATA.", rich_help_panel=_TRAINING),
    ] = None,
    assignments: SetOption = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Fixes initial weights and public sampling; never the private noise.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    insecure_seed: Annotated[
        int | None,
        typer.Option(
            help="For tests only: fixes noise and private sampling too. The certificate says so.",
            rich_help_panel=RUN_PANEL,
        ),
    ] = None,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
    patience: Annotated[
        float,
        typer.Option(
            min=1.0,
            help="Under torchrun: seconds after which a process that does not answer ends the run.",
            rich_help_panel=PROCESSES_PANEL,
            envvar="HALFMASK_PATIENCE",
        ),
    ] = 60.0,
    encrypted_network: Annotated[
        bool,
        typer.Option(
            "--encrypted-network",
            help="Under torchrun on several machines: the network between them is encrypted and closed to others.",
            rich_help_panel=PROCESSES_PANEL,
            envvar="HALFMASK_ENCRYPTED_NETWORK",
        ),
    ] = False,
    shard_private: Annotated[
        bool,
        typer.Option(
            "--shard-private",
            help="Under torchrun: each process opens the images of its own units alone.",
            rich_help_panel=PROCESSES_PANEL,
            envvar="HALFMASK_SHARD_PRIVATE",
        ),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The run folder to write. (default: runs/<recipe>-<method>-<time>)",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Go on with the stopped run in --out, with its settings.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train a model with differential privacy; write its weights, scores and certificate."""
    flags: dict[str, Any] = {
        "method": method,
        "epsilon": epsilon,
        "delta": delta,
        "clip_norm": clip,
        "adjacency": adjacency,
        "unit": unit,
        "accountant": accountant,
        "budget": budget,
        "unsafe_diagnostics": unsafe_diagnostics or None,
        "even_so": even_so or None,
        "strategy": strategy,
        "epochs": epochs,
        "batch": batch,
        "seed": seed,
        "insecure_seed": insecure_seed,
        "device": device,
        "data": None if data is None else {"name": data},
    }
    if resume and out is None:
        raise HalfmaskError("--resume needs to know which run to go on with: add --out RUN")
    if resume and recipe is None:
        recipe = _settings_of(out)
    recipe = recipe or recipe_for(method)
    config = resolve(recipe, flags, assignments)
    use_threads(threads)
    folder = out or default_folder(recipe, config.task, config.method)

    from halfmask.cli.console import TerminalProgress
    from halfmask.training.distributed import Joining, is_root
    from halfmask.training.progress import Progress
    from halfmask.training.running import run_training

    # Of several processes one speaks.
    speaks = is_root()
    try:
        with TerminalProgress() if speaks else nullcontext(Progress()) as progress:
            folder = run_training(config, folder, progress, resume, Joining(patience, encrypted_network, shard_private))
    except KeyboardInterrupt:
        if speaks:
            _tell_how_to_go_on(folder)
        raise typer.Exit(130) from None
    if speaks:
        _summary(folder, as_json)


def _settings_of(out: Path | None) -> str:
    assert out is not None
    if not (out / "config.yaml").is_file():
        raise HalfmaskError(f"{out} holds no run to go on with: it has no config.yaml")
    return str(out / "config.yaml")


def _tell_how_to_go_on(folder: Path) -> None:
    from halfmask.cli.console import note

    if not (folder / "checkpoint" / "state.pt").is_file():
        note("stopped before the first step; nothing was spent")
        return
    whole = (folder / "certificate.json").is_file()
    note(f"stopped; {folder} holds the run so far" + (", scored and certified for the steps it took" if whole else ""))
    note(f"go on with: halfmask train --resume --out {folder}")


def _summary(folder: Path, as_json: bool) -> None:
    from halfmask.cli.console import say, say_json
    from halfmask.report.tables import score_line
    from halfmask.training.runs import read_json

    metrics = read_json(folder / "metrics.json")
    certificate = read_json(folder / "certificate.json")
    assert certificate is not None
    if as_json:
        say_json({"run": str(folder), "metrics": metrics, "certificate": certificate})
        return
    if metrics is None:
        say("the dataset has no test split, so the model was not scored")
    else:
        say(f"{score_line(metrics['metrics'])}   ({metrics['dataset']}, {metrics['split']})")
    say(promise_line(certificate))
    say(f"certificate: {folder / 'certificate.md'}")


def promise_line(certificate: dict[str, Any]) -> str:
    """A certificate in one line."""
    spent = certificate["epsilon"][certificate["adjacency"]]
    if spent is None:
        return "a rehearsal: no private image was read, and nothing is promised"
    if spent == "infinity":
        return "ε = ∞: no privacy guarantee"
    where = f"{certificate['adjacency']}, one {certificate['unit']} of {certificate['units']:,}"
    if spent == 0:
        return f"ε = 0: the private images were not read ({where})"
    return f"ε = {spent:.4g}   δ = {certificate['delta']:g}   ({where})"
