"""Steps of a critic are what they are said to be: exact but for the noise, paid for, within the budget, and known again afterwards."""

from __future__ import annotations

import json
import multiprocessing
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import safetensors.torch
import torch
from torch import Tensor

from halfmask.errors import HalfmaskError
from halfmask.models.posegan import PoseGAN
from halfmask.privacy.account import Account
from halfmask.privacy.accounting import epsilon, steps_within
from halfmask.privacy.noise import RandomStream
from halfmask.privacy.sampling import PoissonSampler
from halfmask.privacy.verification import verify_certificate
from halfmask.tasks.generate import GenerateTask
from halfmask.tasks.generate_halves import FakeHalf, GeneratorSteps
from halfmask.tasks.generate_matching import Matching
from halfmask.training import running
from halfmask.training.config import RunConfig, build_config, load_recipe
from halfmask.training.course import Diverged
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder
from halfmask.training.progress import Progress
from halfmask.training.running import run_training
from halfmask.training.runs import open_run
from halfmask.training.setup import prepare

pytestmark = pytest.mark.usefixtures("quick_accounting", "one_thread", "tiny_posegan")
Patch = pytest.MonkeyPatch
SMALL = (
    "data.private=24",
    "data.public=52",
    "data.public_skip=0",
    "data.test=0",
    "data.per_subject=3",
    "data.height=16",
    "data.width=16",
    "model.size=tiny",
    "model.weights=null",
    "model.generator_batch=4",
    "model.critic_steps=1",
    "delta=0.001",
    "batch=6",
    "epochs=1",
)


def config_of(*settings: str, **flags: object) -> RunConfig:
    return build_config(load_recipe("generate/critic"), {"even_so": True, **flags}, [*SMALL, *settings])


def trainer_of(folder: Path, config: RunConfig) -> Trainer:
    return Trainer(prepare(config, Progress()), RunFolder.create(folder, config), Progress())


def certificate_of(folder: Path) -> dict:
    assert all(check.passed for check in verify_certificate(folder / "model.safetensors", folder / "certificate.json"))
    return json.loads((folder / "certificate.json").read_text())


# ---- exactness -----------------------------------------------------------------------------------------------------------


def one_by_one(critic: torch.nn.Module, values: Callable[[], Tensor]) -> Tensor:
    """The gradient of one number, by autograd alone."""
    gradients = torch.autograd.grad(values(), list(critic.parameters()))
    return torch.cat([gradient.flatten() for gradient in gradients]).double()


def clipped(gradient: Tensor, clip: float) -> Tensor:
    return gradient * min(1.0, clip / float(gradient.norm()))


@pytest.mark.parametrize("unit", ["image", "subject"])
@pytest.mark.parametrize(
    "way",
    [("model.clip=real",), ("model.clip=pair",), ("model.clip=pair", "augment.times=2"), ("model.clip=real", "model.conditional=true")],
)
@pytest.mark.parametrize("clip", [0.05, 1e3], ids=["all clipped", "none clipped"])
def test_a_step_is_the_sum_of_clipped_gradients_taken_one_at_a_time(
    way: tuple[str, ...], unit: str, clip: float, tmp_path: Path, monkeypatch: Patch
) -> None:
    """Without noise, and by an optimiser that takes it as it is: old weights minus new ones."""
    optimiser = ("optimiser.name=sgd", "optimiser.learning_rate=1", "optimiser.momentum=0", "optimiser.schedule=constant")
    config = config_of(
        *way, f"clip_norm={clip}", "batch=3", "model.bound=none", "model.generator_steps=0", *optimiser, unit=unit, insecure_seed=1
    )
    trainer = trainer_of(tmp_path / "run", config)
    setup, task, model = trainer.setup, trainer.setup.task, trainer.setup.model
    assert isinstance(task, GenerateTask) and isinstance(model, PoseGAN) and isinstance(trainer.exact, FakeHalf)
    drawn = torch.tensor([0, 2, 5])
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: drawn)
    monkeypatch.setattr(RandomStream, "gaussian", lambda self, count, *rest: torch.zeros(count, dtype=torch.float64))
    critic, conditional, times = model.critic, config.model.conditional, config.augment.times
    real, joints = (setup.private.batch(np.arange(24))[name] for name in ("image", "joints"))
    total = torch.zeros(sum(weight.numel() for weight in critic.parameters()), dtype=torch.float64)
    for number in drawn.tolist():
        gradient, members = torch.zeros_like(total), setup.units.members[number]
        for row in members.tolist():
            picture = real[row : row + 1].float() / 127.5 - 1
            maps = task._heatmaps(model, joints[row : row + 1]) if conditional else None
            gradient -= one_by_one(critic, lambda picture=picture, maps=maps: critic(picture, maps)[0]) / len(members)
            if config.model.clip == "pair":
                shown = trainer.noised.showing.show(setup.private, np.array([row]), "private", use="private", step=0, times=times)[0]
                for which in range(times):
                    other = task._heatmaps(model, shown["joints of another"][which : which + 1])
                    fake = model.generate(shown["noise"][which : which + 1], other).detach()
                    gradient += one_by_one(critic, lambda fake=fake: critic(fake)[0]) / times / len(members)
        total += clipped(gradient, clip) / 3
    if config.model.clip == "real":
        fakes = trainer.exact._fakes(0)
        for row in range(trainer.exact.size):
            maps = fakes["heatmaps"][row : row + 1] if conditional else None
            value = lambda row=row, maps=maps: critic(fakes["picture"][row : row + 1], maps)[0]  # noqa: E731
            total += clipped(one_by_one(critic, value), clip) / trainer.exact.size
    before = torch.cat([weight.detach().flatten() for weight in critic.parameters()]).double()
    trainer.begin()
    trainer.make_ready(1)
    trainer.take_step()
    moved = before - torch.cat([weight.detach().flatten() for weight in critic.parameters()]).double()
    assert float(total.norm()) > 1e-3 and float((moved - total).norm()) < 2e-4 * float(total.norm()) + 1e-6


# ---- the budget ----------------------------------------------------------------------------------------------------------


def test_noise_that_is_fixed_lasts_until_one_more_block_would_pass_the_budget(tmp_path: Path, fresh_home: Path) -> None:
    config = config_of("model.clip=pair", "noise_multiplier=1.3", "epochs=50", "budget=3", "model.generator_steps=0", epsilon=3)
    folder = run_training(config, tmp_path / "run")
    setup = prepare(config, Progress())
    plan = setup.plan
    assert plan is not None and plan.noise_multiplier == 1.3
    lasts = steps_within(3, 1e-3, replace(plan, steps=200))
    assert 5 < lasts < 200, "neither nothing nor everything"
    body, own = certificate_of(folder), setup.account.ledger.spends()
    assert body["steps"] == body["planned_steps"] == sum(spend.steps for spend in own) == lasts
    block = max(spend.steps for spend in own)
    assert body["epsilon"]["zero-out"] == pytest.approx(epsilon([replace(plan, steps=lasts)], 1e-3)) and body["epsilon"]["zero-out"] <= 3
    assert epsilon([replace(plan, steps=lasts + block)], 1e-3) > 3
    with pytest.raises(HalfmaskError, match="budget"):
        run_training(config, tmp_path / "again")


# ---- a run that goes on --------------------------------------------------------------------------------------------------


def cut(patch: Patch, at: int) -> None:
    """The power fails when coins are tossed for the step of that number."""
    real, tossed = PoissonSampler.draw, [0]

    def draw(self: PoissonSampler) -> Tensor:
        tossed[0] += 1
        if tossed[0] == at:
            raise RuntimeError("power cut")
        return real(self)

    patch.setattr(PoissonSampler, "draw", draw)


def test_a_run_that_died_between_payment_and_step_goes_on_with_what_was_paid(tmp_path: Path, fresh_home: Path, monkeypatch: Patch) -> None:
    """Nothing is paid for twice, nothing is drawn twice, and the average is released all the same."""
    config = config_of("epochs=2", "model.average=0.9")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="power cut"):
        cut(patch, 6)
        run_training(config, tmp_path / "run")
    account = Account(prepare(config, Progress()).data.fingerprints)
    assert sum(spend.steps for spend in account.ledger.spends()) == 6
    made: list[GeneratorSteps] = []
    real = GeneratorSteps.__init__
    monkeypatch.setattr(GeneratorSteps, "__init__", lambda self, setup: made.append(self) or real(self, setup))
    run_training(config, tmp_path / "run", resume=True)
    body = certificate_of(tmp_path / "run")
    # Four steps had reached a file, six were paid for, of eight: two are lost.
    assert body["steps"] == 8 == sum(spend.steps for spend in account.ledger.spends()) and made[0].taken == 6
    released = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert made[0].averaged is not None
    for name, weight in made[0].averaged.generator.state_dict().items():
        assert torch.equal(released[f"generator.{name}"], weight)
    # Whoever attacks the run attacks what was released: an untrained critic would have nothing to tell.
    opened = open_run(tmp_path / "run").model.state_dict()
    assert opened.keys() == released.keys() and all(torch.equal(opened[name], released[name]) for name in released)


def test_means_that_were_paid_for_and_lost_are_no_result(tmp_path: Path, fresh_home: Path, monkeypatch: Patch) -> None:
    config = config_of("model.critic=means", "batch=24", "model.generator_steps=3", unit="image")
    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="power cut"):
        cut(patch, 1)
        run_training(config, tmp_path / "run")
    with pytest.raises(Diverged, match=r"paid for, and lost.*new run"):
        run_training(config, tmp_path / "run", resume=True)
    assert certificate_of(tmp_path / "run")["steps"] == 1


def test_a_generator_that_was_stopped_goes_on_with_the_same_means(tmp_path: Path, fresh_home: Path, monkeypatch: Patch) -> None:
    config = config_of("model.critic=means", "batch=24", "model.generator_steps=6", unit="image")
    real = Matching.follow

    def follow(self: Matching) -> None:
        if self.taken == 4:
            raise KeyboardInterrupt
        real(self)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Matching, "follow", follow)
        run_training(config, tmp_path / "run")
    first = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    made: list[GeneratorSteps] = []
    begin = GeneratorSteps.__init__
    monkeypatch.setattr(GeneratorSteps, "__init__", lambda self, setup: made.append(self) or begin(self, setup))
    monkeypatch.setattr(PoissonSampler, "draw", lambda self: pytest.fail("private people were read again"))
    run_training(config, tmp_path / "run", resume=True)
    last = safetensors.torch.load_file(tmp_path / "run" / "model.safetensors")
    assert made[0].taken == 6 and certificate_of(tmp_path / "run")["steps"] == 1
    assert torch.equal(first["critic.linear.weight"], last["critic.linear.weight"]) and bool(last["critic.linear.weight"].any())
    assert not torch.equal(first["generator.decoder.out.weight"], last["generator.decoder.out.weight"])


def _child(config: RunConfig, out: Path) -> None:
    torch.set_num_threads(1)
    run_training(config, out)


def test_two_runs_at_once_lose_no_entry(tmp_path: Path, fresh_home: Path, monkeypatch: Patch) -> None:
    config = config_of("epochs=3")
    setup = prepare(config, Progress())
    monkeypatch.setattr(running, "prepare", lambda config, progress, **_: setup)
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_child, args=(config, tmp_path / name)) for name in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    spends = setup.account.ledger.spends()
    taken = {spend.run: sum(one.steps for one in spends if one.run == spend.run) for spend in spends}
    assert list(taken.values()) == [setup.steps, setup.steps]


# ---- who and what is known again -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["all of it", "the generator alone", "another critic"])
def test_weights_of_an_earlier_run_carry_its_cost_whichever_part_is_taken(part: str, tmp_path: Path, fresh_home: Path) -> None:
    """The generator is never shown anybody, and yet all that it learnt was paid for."""
    run = run_training(config_of(), tmp_path / "first")
    state = safetensors.torch.load_file(run / "model.safetensors")
    if part == "the generator alone":
        state = {name: tensor for name, tensor in state.items() if name.startswith("generator.")}
    elsewhere = tmp_path / "elsewhere" / "start.safetensors"
    elsewhere.parent.mkdir()
    safetensors.torch.save_file(state, elsewhere)
    fresh = ("model.fresh_critic=true",) if part == "another critic" else ()
    second = run_training(config_of(f"model.weights={elsewhere}", *fresh), tmp_path / "second")
    first, body = certificate_of(run), certificate_of(second)
    assert body["composed_with"] == [first["run"]] and body["epsilon"]["zero-out"] > 1.2 * body["own_epsilon"]["zero-out"]


def test_a_generator_that_never_moved_is_nobodys(tmp_path: Path, fresh_home: Path) -> None:
    """A public start that a run left as it was is still public."""
    start = tmp_path / "start.safetensors"
    torch.manual_seed(3)
    state = PoseGAN("tiny", 16, 16, 16).state_dict()
    safetensors.torch.save_file({name: tensor for name, tensor in state.items() if name.startswith("generator.")}, start)
    run_training(config_of(f"model.weights={start}", "model.generator_steps=0"), tmp_path / "first")
    assert not prepare(config_of(f"model.weights={start}"), Progress()).behind


def test_other_people_have_an_account_of_their_own(care: Path, photo: Callable[..., None], tmp_path: Path, fresh_home: Path) -> None:
    """So that what is refused below is refused for who is in it."""
    own = ("data.named_share=0", "data.splits.private=1-6", "data.format=cad60", "model.generator_steps=0", "batch=3", "budget=1.5")
    run_training(config_of(f"data.name={care}", *own), tmp_path / "first")
    strangers = renamed(care, tmp_path / "strangers")
    for number, path in enumerate(sorted(strangers.rglob("*.jpg"))):
        photo(path, seed=1000 + number)
        path.parent.joinpath("joints.csv").write_text(path.parent.joinpath("joints.csv").read_text().replace(",30,80", ",35,85"))
    run_training(config_of(f"data.name={strangers}", *own), tmp_path / "second")


@pytest.fixture
def care(tmp_path: Path, photo: Callable[..., None]) -> Path:
    """Frames of six people, with joints."""
    for person in range(6):
        place = tmp_path / "care" / f"p{person}" / "phone"
        for frame in range(4):
            photo(place / f"RGB_{frame}.png", seed=10 * person + frame)
        rows = (f"RGB_{frame}.png,{40 + frame},{50 + person},30,80" for frame in range(4))
        place.joinpath("joints.csv").write_text("\n".join(["file,head_top_x,head_top_y,pelvis_x,pelvis_y", *rows]))
    return tmp_path / "care"


def renamed(care: Path, to: Path) -> Path:
    """The same frames under other names of people and folders, re-encoded, and without a word about where they come from."""
    for person, folder in enumerate(sorted(care.iterdir())):
        place = to / f"x{9 - person}" / "calling"
        place.mkdir(parents=True)
        for frame in range(4):
            image = cv2.imread(str(folder / "phone" / f"RGB_{frame}.png"))
            cv2.imwrite(str(place / f"RGB_{frame}.jpg"), image, [cv2.IMWRITE_JPEG_QUALITY, 90])
        rows = (f"RGB_{frame}.jpg,{40 + frame},{50 + person},30,80" for frame in range(4))
        place.joinpath("joints.csv").write_text("\n".join(["file,head_top_x,head_top_y,pelvis_x,pelvis_y", *rows]))
    return to


@pytest.mark.parametrize("detour", ["another folder", "other names and bytes", "another size", "cut round the person", "some of them"])
@pytest.mark.parametrize("unit", ["image", "subject"])
def test_the_same_people_have_one_account(detour: str, unit: str, care: Path, tmp_path: Path, fresh_home: Path) -> None:
    own = ("data.named_share=0", "data.splits.private=1-6", "data.format=cad60", "model.generator_steps=0", "batch=3", "budget=1.5")
    config = config_of(f"data.name={care}", *own, unit=unit)
    run_training(config, tmp_path / "first")
    changed = {
        "another folder": lambda: (f"data.name={shutil.copytree(care, tmp_path / 'copy')}",),
        "other names and bytes": lambda: (f"data.name={renamed(care, tmp_path / 'again')}",),
        "another size": lambda: ("data.height=32", "data.width=32", "data.fit=squeeze"),
        "cut round the person": lambda: ("data.fit=person",),
        "some of them": lambda: ("data.splits.private=2-5",),
    }[detour]()
    with pytest.raises(HalfmaskError, match="budget"):
        run_training(config_of(f"data.name={care}", *own, *changed, unit=unit), tmp_path / "second")
