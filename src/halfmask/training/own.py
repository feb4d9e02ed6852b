"""`halfmask.train`: a model, a loss and a dataset of one's own, trained with differential privacy.

    run = halfmask.train(model, loss, private=dataset, unit="patient", epsilon=3.0, delta=1e-6, clip_norm=1.0, batch=64, epochs=5,
                         test=test_set, score=accuracy, out="runs/mine")
    run.model, run.scores, run.certificate, run.folder

The same loop, ledger, certificate, run folder and audits as for the tasks that come with Halfmask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from halfmask.data.items import RECORD, Form, leaves, read_items
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets, Records
from halfmask.errors import HalfmaskError
from halfmask.gradients.apart import refuse_mixing
from halfmask.gradients.mechanism import method_named
from halfmask.tasks.own import LossOfItems, OwnTask, OwnView, same_build
from halfmask.training.config import RunConfig, build_config
from halfmask.training.distributed import ALONE, Group
from halfmask.training.progress import Progress
from halfmask.training.running import Run, default_progress, train_prepared, working_on
from halfmask.training.setup import Setup, prepare
from halfmask.words import a_or_an

# The most public records to span a subspace, and the most directions, where nothing else is said.
_SAMPLES, _DIRECTIONS = 100, 50
KEEPS_NOTHING = (
    "that the loss, the model and the view given to it keep nothing of private records from one call to the next, and read them nowhere "
    "else: declared by whoever wrote them"
)
_METHODS = {(False, False): "dpsgd", (True, False): "projected", (False, True): "feature", (True, True): "feature-projective"}


def train(
    model: nn.Module,
    loss: LossOfItems,
    *,
    private: Any,
    unit: str,
    epsilon: float,
    delta: float,
    clip_norm: float,
    batch: int,
    epochs: float,
    test: Any = None,
    score: Callable[[nn.Module, Any], Tensor | dict[str, Tensor]] | None = None,
    public: Any = None,
    view: Callable[[Any], Any] | None = None,
    sample: Any = None,
    method: str | None = None,
    optimiser: str | Mapping[str, Any] | Callable[[list[nn.Parameter]], torch.optim.Optimizer] = "sgd",
    out: str | Path | None = None,
    resume: bool = False,
    seed: int = 0,
    insecure_seed: int | None = None,
    records_per_unit: int = 8,
    adjacency: str = "zero-out",
    budget: float | None = None,
    name: str = "own",
    strangers: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Train a model of one's own on a dataset of one's own, within a privacy budget.

    Args:
        model: in evaluation mode if it normalises by batch statistics. What has `requires_grad` trains.
        loss: `loss(model, batch)` → one value per record, each of its own record alone. A batch is built as an item is.
        private: a map-style dataset whose items are dicts or tuples of tensors, arrays or numbers. Every item is read twice before
            anything is paid, and must be the same both times.
        unit: the field whose value says whose a record is (records with the same value are one unit), or `record`. It has no default: what
            is protected is for the data holder to say.
        batch: the expected number of units in a step.
        test, score: records to judge the model on, and `score(model, batch)` → one value per record, or several by name; without it the
            mean loss is told.
        public: records that nobody needs to protect: the private gradients are kept to the directions of theirs (`projected`).
        view: a function from an item to what is public of it (`feature`; with `public` too, `feature-projective`).
        sample: records to try the loss on before anything is read; noise in the shape of the items if there is neither that nor `public`.
        method: by name, in place of the one that follows from `public` and `view`.
        optimiser: a name, settings such as `{"name": "adamw", "learning_rate": 1e-3}`, or a function from weights to an optimiser.
        resume: go on with the run in `out`, which was stopped.
        insecure_seed: for tests: fixes noise and coins; the certificate then has no bound.
        budget: the ε, at `delta`, that all runs ever made on these people must stay within together.
        strangers: of `public` and `test`, those without the unit's field, of which the data holder declares that no protected unit is
            in them.
        settings: any other setting by its key, such as `{"subspace.dim": 20}`; see docs/settings.md.
    """
    chosen = method or _METHODS[public is not None, view is not None]
    folder = Path(out) if out is not None else Path("runs") / f"{name}-{chosen}-{datetime.now():%Y%m%d-%H%M%S}"
    config = own_config(
        {
            "method": chosen,
            "epsilon": epsilon,
            "delta": delta,
            "clip_norm": clip_norm,
            "batch": batch,
            "epochs": epochs,
            "unit": unit,
            "records_per_unit": records_per_unit,
            "adjacency": adjacency,
            "budget": budget,
            "seed": seed,
            "insecure_seed": insecure_seed,
            "data": {"name": name, "strangers": list(strangers)},
        },
        public,
        optimiser,
        settings,
    )
    with working_on(folder, config, resume) as (group, folder):
        progress = group.progress(progress or default_progress())
        made = optimiser if callable(optimiser) else None
        setup = own_setup(config, model, loss, private, progress, test, score, public, view, sample, optimiser=made, group=group)
        train_prepared(setup, folder, progress, resume)
        return Run.of(setup, folder)


def own_config(recipe: dict[str, Any], public: Any, optimiser: Any, settings: Mapping[str, Any] | None) -> RunConfig:
    """The settings of a run on a dataset of one's own."""
    if public is not None:
        samples = max(1, min(_SAMPLES, len(public) // 2))
        recipe = recipe | {"subspace": {"samples": samples, "dim": min(_DIRECTIONS, samples)}}
    if isinstance(optimiser, str):
        recipe = recipe | {"optimiser": {"name": optimiser}}
    elif isinstance(optimiser, Mapping):
        recipe = recipe | {"optimiser": dict(optimiser)}
    return build_config({"task": "own", "strategy": "full"} | recipe, {}, settings=settings)


def own_setup(
    config: RunConfig,
    model: nn.Module,
    loss: LossOfItems,
    private: Any,
    progress: Progress,
    test: Any = None,
    score: Callable[[nn.Module, Any], Any] | None = None,
    public: Any = None,
    view: Callable[[Any], Any] | None = None,
    sample: Any = None,
    facts: Sequence[str] = (),
    optimiser: Callable[[list[nn.Parameter]], torch.optim.Optimizer] | None = None,
    group: Group = ALONE,
) -> Setup:
    """A run on a dataset of one's own, ready to start."""
    if not isinstance(model, nn.Module):
        raise HalfmaskError(f"the model is {a_or_an(type(model).__name__)}: expected a torch.nn.Module")
    if not any(weight.requires_grad for weight in model.parameters()):
        raise HalfmaskError("the model has no trainable parameters: set requires_grad of those that shall learn")
    if method_named(config.method).view and view is None:
        raise HalfmaskError(f"method '{config.method}' learns from what is public of each item, and no view= says what that is")
    refuse_mixing(model)
    records, form = read_items(private, config.unit, "the private dataset", config.records_per_unit, progress.stage)
    parts = {part: _open_part(dataset, part, form, config) for part, dataset in (("public", public), ("test", test)) if dataset is not None}
    seen = None if view is None else OwnView.of_items(view, private, form, "the private dataset")
    if view is not None and parts.get("public") is not None and not same_build(view(private[0]), private[0]):
        # Views and raw items of another build cannot stand in one batch.
        config = build_config(config.plain(), {}, ["public.raw_share=0"])
    task = OwnTask(config, loss, form, score, seen, sample, [KEEPS_NOTHING, *facts], optimiser)
    data = Datasets(records, parts.get("public"), parts.get("test"), config.data.name, fingerprints_of(records))
    return prepare(config, progress, data, model, task=task, group=group)


def _open_part(dataset: Any, part: str, form: Form, config: RunConfig) -> Records:
    named = hasattr(dataset, "__len__") and len(dataset) > 0 and any(field == config.unit for field, _ in leaves(dataset[0]))
    # Ids that are there are compared, whatever was declared of those that are not.
    unit = config.unit if named or part not in config.data.strangers else RECORD
    records, build = read_items(dataset, unit, f"the {part} dataset")
    if build.without(config.unit) != form.without(config.unit):
        raise HalfmaskError(f"items of the {part} dataset are built as {build.build} and private ones as {form.build}: expected the same")
    return records
