"""What a certificate says is assumed public: neither more nor less than the method uses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from halfmask.data.records import Datasets
from halfmask.tasks.pose import PoseTask
from halfmask.training.assumptions import public_assumptions
from halfmask.training.config import RunConfig
from halfmask.training.progress import Progress
from halfmask.training.setup import Setup, prepare

pytestmark = pytest.mark.usefixtures("quick_accounting")
Build = Callable[..., RunConfig]


def ready(config: RunConfig) -> Setup:
    return prepare(config, Progress())


def test_labels_are_said_to_be_public_where_they_are(tiny_config: Build) -> None:
    for method, public in (("dpsgd", False), ("projected", False), ("feature", True), ("public-only", True)):
        lines = public_assumptions(ready(tiny_config(method=method)))
        assert any("labels" in line and "not" in line and "private record" in line for line in lines) == public
        assert any("Gaussian blur" in line for line in lines) == public
        assert any("number of private units (40)" in line for line in lines)


def test_raw_public_people_are_named_where_they_are_used(tiny_config: Build) -> None:
    assert any("raw images" in line for line in public_assumptions(ready(tiny_config(method="public-only"))))
    assert not any("raw images" in line for line in public_assumptions(ready(tiny_config("public.raw_share=0", method="feature"))))
    assert not any("raw images" in line for line in public_assumptions(ready(tiny_config(method="dpsgd"))))
    shared = ready(tiny_config("public.raw_share=0.5", method="feature"))
    assert any("raw images" in line for line in public_assumptions(shared))


def test_a_task_adds_what_else_is_public(tiny_config: Build) -> None:
    """Its labels in its own words, and its own facts, before the test set."""

    class Told(PoseTask):
        labels = "the weight of every cat"

        def public_facts(self, data: Datasets) -> list[str]:
            return [f"the names of {len(data.private)} streets"]

    config = tiny_config(method="feature")
    lines = public_assumptions(prepare(config, Progress(), task=Told(config)))
    assert any("the weight of every cat" in line for line in lines) and not any("keypoints" in line for line in lines)
    assert lines[-2] == "the names of 40 streets" and "test set" in lines[-1]
