"""Models that an audit trains for itself, by the real training, in a home that is thrown away."""

from __future__ import annotations

from dataclasses import replace

from halfmask.audit.canaries import quarantine
from halfmask.data.datasets import Datasets, fingerprints_of
from halfmask.data.records import PoseRecords
from halfmask.models.simcc import PoseModel
from halfmask.training.config import RunConfig
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.setup import prepare


def train_shadow(config: RunConfig, private: PoseRecords, public: PoseRecords | None) -> PoseModel:
    """A model by this recipe on these people. It is nobody's release: no ledger hears of it, no budget binds it."""
    # Someone who left for S_pub in the run that is audited must not leave again here.
    config = replace(config, budget=None, subspace=replace(config.subspace, source="public"))
    with quarantine() as folder:
        data = Datasets(private, public, None, config.data.name, fingerprints_of(private))
        setup = prepare(config, Progress(), data)
        Trainer(setup, RunFolder.create(folder, config), Progress()).train()
    return setup.model.cpu()
