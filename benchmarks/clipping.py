"""What a private step costs beside an ordinary one: `python -m benchmarks.clipping`.

Each contender takes a whole step: gradients, clipping, noise where it has any, and the SGD update. Ours draws its noise from the secure
stream; peers draw theirs from torch's generator. Peers that cannot train a model are reported as such, with their own words.
Time: interleaved rounds in one process, medians. Memory: a fresh process for each contender.
"""

from __future__ import annotations

import argparse
import copy
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.networks import TorchViT, ViT, resnet18
from benchmarks.timing import conditions, interleaved, peak_memory_of, print_peak
from halfmask.gradients.engine import ClippingEngine
from halfmask.gradients.mechanism import Mechanism
from halfmask.gradients.slow import slow_terms
from halfmask.gradients.subspace import Subspace
from halfmask.models.critic import Critic
from halfmask.models.hyperface import HyperFace
from halfmask.models.mvit import MViT, last_normalisations
from halfmask.models.mvit_attention import Pool
from halfmask.models.pose import choose_parameters
from halfmask.models.posegan import PoseGAN, pair_losses
from halfmask.models.simcc import PoseModel
from halfmask.models.tinyvit import ConvNorm
from halfmask.privacy.noise import RandomStream
from halfmask.tasks.face import subtask_losses
from halfmask.tasks.pose import pose_loss

Step = Callable[[], object]
Batch = dict[str, Tensor]
RATE, CLIP, SIGMA = 1e-3, 1.0, 1.0


def classify(model: nn.Module, batch: Batch) -> Tensor:
    return F.cross_entropy(model(batch["x"]), batch["y"], reduction="none")


def pose_case(strategy: str, records: int = 32) -> tuple[PoseModel, Callable[..., Tensor], Batch]:
    torch.manual_seed(0)
    model = PoseModel("5m", 16).eval()
    choose_parameters(model, strategy)
    batch = {
        "image": torch.randint(0, 256, (records, 3, 256, 192), dtype=torch.uint8),
        "joints": torch.rand(records, 16, 2) * 190,
        "labelled": torch.ones(records, 16, dtype=torch.bool),
    }
    if strategy == "top":
        with torch.no_grad():
            batch["features"] = model.lower(batch.pop("image"))
    return model, pose_loss, batch


def picture_case(model: nn.Module, size: int, records: int) -> tuple[nn.Module, Callable[..., Tensor], Batch]:
    return model, classify, {"x": torch.randn(records, 3, size, size), "y": torch.randint(0, 10, (records,))}


def _resnet() -> tuple[nn.Module, Callable[..., Tensor], Batch]:
    torch.manual_seed(0)
    return picture_case(resnet18(), 64, 64)


def _vit() -> tuple[nn.Module, Callable[..., Tensor], Batch]:
    torch.manual_seed(0)
    return picture_case(ViT(), 224, 16)


def _torch_vit() -> tuple[nn.Module, Callable[..., Tensor], Batch]:
    torch.manual_seed(0)
    return picture_case(TorchViT(), 224, 16)


def face_case(size: str, records: int, weighted: bool = True) -> tuple[nn.Module, Callable[..., Tensor], Batch]:
    """HyperFace with its five losses: weighed by log-variances, which are bare parameters, or by constants for peers who know none."""
    torch.manual_seed(0)
    model = HyperFace(size)  # in training mode, which Opacus asks for; nothing in it is different then
    model.log_variances.requires_grad = weighted
    draw = torch.rand
    batch = {"image": torch.randint(0, 256, (records, 3, model.shape.input_size, model.shape.input_size), dtype=torch.uint8)}
    batch |= {"face": (draw(records) < 0.5).float(), "landmarks": draw(records, 21, 2) - 0.5, "visible": draw(records, 21).round()}
    batch |= {"pose": draw(records, 3), "posed": torch.ones(records), "attribute": draw(records).round(), "attributed": torch.ones(records)}

    def loss(network: nn.Module, some: Batch) -> Tensor:
        losses = torch.stack(list(subtask_losses(network(some["image"]), some).values()), 1)
        if not weighted:
            return losses.sum(1)
        variances = network.log_variances
        return (losses * torch.exp(-variances) + variances).sum(1)

    return model, loss, batch


def action_case(strategy: str, records: int = 16, torchs_own: bool = False) -> tuple[nn.Module, Callable[..., Tensor], Batch]:
    """MViT-nano on clips of which some tokens are there.

    Args:
        torchs_own: with torch's own depthwise convolutions, which peers know, in the place of ours, whose gradients are faster.
    """
    torch.manual_seed(0)
    model = MViT("nano", 16)
    for module in list(model.modules()) if torchs_own else ():
        if isinstance(module, Pool):
            ours = module.pool
            module.pool = nn.Conv3d(  # type: ignore[assignment]
                ours.in_channels, ours.out_channels, ours.kernel_size, ours.stride, ours.padding, groups=ours.groups, bias=False
            )
    trained = {id(p) for p in (last_normalisations(model) if strategy == "finetune" else model.parameters())}
    for parameter in model.parameters():
        parameter.requires_grad = id(parameter) in trained
    clips = torch.randn(records, 3, model.frames, model.side, model.side)
    batch = {"x": clips, "tokens": torch.rand(records, *model.grid) < 0.5, "y": torch.randint(0, 16, (records,))}

    def loss(network: nn.Module, some: Batch) -> Tensor:
        return F.cross_entropy(network(some["x"], some["tokens"]), some["y"], reduction="none")

    return model, loss, batch


def critic_case(size: str, records: int, form: str) -> tuple[nn.Module, Callable[..., Tensor], Batch]:
    """The critic of a generator of people, on pictures of 64×48.

    Args:
        form: `real` for a real picture alone, `pairs` for a real and a drawn one in one pass, `two passes` for one after the other:
            peers do not know two rows of a layer for one record's.
    """
    torch.manual_seed(0)
    model = PoseGAN(size).critic
    batch = {"real": torch.rand(records, 3, 64, 48) * 2 - 1}
    if form != "real":
        batch["fake"] = torch.rand(records, 3, 64, 48) * 2 - 1

    def loss(network: nn.Module, some: Batch) -> Tensor:
        if form == "pairs":
            return pair_losses(network, some["real"], some["fake"])
        real = -network(some["real"])
        return real if form == "real" else network(some["fake"]) + real

    return model, loss, batch


CASES = {
    "posegan-small": lambda: critic_case("small", 128, "real"),
    "posegan-small, pairs": lambda: critic_case("small", 128, "pairs"),
    "posegan-small, pairs in two passes": lambda: critic_case("small", 128, "two passes"),
    "posegan-paper": lambda: critic_case("paper", 32, "real"),
    "posegan-paper, pairs": lambda: critic_case("paper", 32, "pairs"),
    "posegan-paper, pairs in two passes": lambda: critic_case("paper", 32, "two passes"),
    "mvit-finetune": lambda: action_case("finetune"),
    "mvit-full": lambda: action_case("full"),
    "mvit-finetune, torch's convolutions": lambda: action_case("finetune", torchs_own=True),
    "mvit-full, torch's convolutions": lambda: action_case("full", torchs_own=True),
    "hyperface-small": lambda: face_case("small", 64),
    "hyperface-small, constant weights": lambda: face_case("small", 64, weighted=False),
    "hyperface-paper": lambda: face_case("paper", 32),
    "hyperface-paper, constant weights": lambda: face_case("paper", 32, weighted=False),
    "tinyvit-finetune": lambda: pose_case("finetune"),
    "tinyvit-full": lambda: pose_case("full"),
    "resnet18": _resnet,
    "vit-s16": _vit,
    "vit-s16-torch": _torch_vit,
}
SAME = {"same-network-finetune": "finetune", "same-network-full": "full"}


@contextmanager
def as_published() -> Iterator[None]:
    """Frozen normalisations not folded into convolutions, maps as torch lays them: the network anyone would train."""
    ConvNorm.folds = False
    try:
        with critic_as_published():
            yield
    finally:
        ConvNorm.folds = True


@contextmanager
def critic_as_published() -> Iterator[None]:
    """Of ours, what some peers cannot bear: maps in another order, changed in place."""
    Critic.thrifty = False
    try:
        yield
    finally:
        Critic.thrifty = True


def plain_as_published(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Batch) -> Step:
    step = plain(model, loss_fn, batch)

    def published() -> None:
        with as_published():
            step()

    return published


def plain(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Batch) -> Step:
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=RATE)

    def step() -> None:
        optimiser.zero_grad()
        loss_fn(model, batch).mean().backward()
        optimiser.step()

    return step


def _update(engine: ClippingEngine, update: Tensor) -> None:
    with torch.no_grad():
        for name, change in engine.unflatten(update).items():
            engine.parameters[name].sub_(change, alpha=RATE)


def ours(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Batch) -> Step:
    engine = ClippingEngine(model)
    count = len(next(iter(batch.values())))
    mechanism = Mechanism(SIGMA, CLIP, count, RandomStream.secure())
    # Where a person's gradients are as large as the activations they come from, a few people at a time stay in the cache.
    chunk = 4 if isinstance(model, (ViT, TorchViT)) else min(count, 64) if isinstance(model, Critic) else count

    def step() -> None:
        _update(engine, mechanism.release(engine.clipped_sum(loss_fn, batch, CLIP, chunk=chunk)))

    return step


def vmap(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Batch) -> Step:
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}

    def step() -> None:
        with critic_as_published():
            terms = slow_terms(model, parameters, loss_fn, batch)
        with torch.no_grad():
            norms = torch.stack([term.direct().gradients.flatten(1).norm(dim=1) for term in terms.values()]).norm(dim=0)
            factors = (CLIP / norms).clamp(max=1)
            for name, p in parameters.items():
                total = torch.einsum("i,i...->...", factors, terms[name].direct().gradients)
                p.sub_((total + SIGMA * CLIP * torch.randn_like(total)) / len(norms), alpha=RATE)

    return step


def opacus_hooks(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Batch) -> Step:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    wrapped = GradSampleModule(model, loss_reduction="mean")
    count = len(next(iter(batch.values())))
    trainable = [p for p in wrapped.parameters() if p.requires_grad]
    optimiser = DPOptimizer(torch.optim.SGD(trainable, lr=RATE), noise_multiplier=SIGMA, max_grad_norm=CLIP, expected_batch_size=count)

    def step() -> None:
        optimiser.zero_grad()
        with critic_as_published():
            loss_fn(wrapped, batch).mean().backward()
        optimiser.step()

    return step


def opacus_ghost(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Batch) -> Step:
    from opacus.grad_sample.grad_sample_module_fast_gradient_clipping import GradSampleModuleFastGradientClipping
    from opacus.optimizers.optimizer_fast_gradient_clipping import DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    wrapped = GradSampleModuleFastGradientClipping(model, max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="mean")
    count = len(next(iter(batch.values())))
    trainable = [p for p in wrapped.parameters() if p.requires_grad]
    optimiser = DPOptimizerFastGradientClipping(
        torch.optim.SGD(trainable, lr=RATE), noise_multiplier=SIGMA, max_grad_norm=CLIP, expected_batch_size=count
    )

    class Criterion:
        reduction = "mean"

        def __call__(self, losses: Tensor, _targets: Tensor) -> Tensor:
            return losses

    criterion = DPLossFastGradientClipping(wrapped, optimiser, Criterion(), loss_reduction="mean")

    def step() -> None:
        optimiser.zero_grad()
        with critic_as_published():
            criterion(loss_fn(wrapped, batch), batch.get("y")).backward()
        optimiser.step()

    return step


CONTENDERS = {
    "plain": plain_as_published,
    "plain, as ours": plain,
    "ours": ours,
    "vmap": vmap,
    "opacus hooks": opacus_hooks,
    "opacus ghost": opacus_ghost,
}


def feature_projective(records: int = 32) -> dict[str, Step]:
    """One private step with an exact public half and a subspace of 50, against two plain steps."""
    model, loss_fn, batch = pose_case("finetune", records)
    engine = ClippingEngine(model)
    mechanism = Mechanism(SIGMA, CLIP, records, RandomStream.secure())
    rows = torch.linalg.qr(torch.randn(engine.size, 50))[0].T.contiguous()
    subspace = Subspace(rows, torch.ones(50))

    def private() -> None:
        update = mechanism.release(engine.clipped_sum(loss_fn, batch, CLIP, chunk=records), subspace)
        update += engine.mean_gradient(loss_fn, batch)[0]
        _update(engine, update)

    once = plain_as_published(*pose_case("finetune", records))
    return {"two plain steps": lambda: (once(), once()), "ours": private}


def cached_top(records: int = 32) -> dict[str, Step]:
    """A private step on cached features against a plain finetune step."""
    return {"plain finetune step": plain_as_published(*pose_case("finetune", records)), "ours": ours(*pose_case("top", records))}


def same_network(strategy: str, records: int = 16) -> dict[str, Step]:
    """The passes alone, of the very same network: nothing folded for either, no noise and no update."""
    model, loss_fn, batch = pose_case(strategy, records)
    engine = ClippingEngine(model)
    parameters = list(engine.parameters.values())

    def plain_pass() -> None:
        with as_published():
            torch.autograd.grad(loss_fn(model, batch).mean(), parameters)

    def clipped_pass() -> None:
        with as_published():
            engine.clipped_sum(loss_fn, batch, CLIP, chunk=records)

    return {"plain pass": plain_pass, "ours": clipped_pass}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=[*CASES, *SAME, "feature-projective", "top"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", default=";".join(CONTENDERS), help="contenders, separated by semicolons")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--processor-time", action="store_true", help="for a core that others share, with --threads 1")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore")
    if options.peak_of:
        print_peak(lambda: CONTENDERS[options.peak_of](*CASES[options.cases[0]]()))
        return
    print(conditions())
    for case in options.cases:
        refused: dict[str, str] = {}
        if case not in CASES:
            special = {"feature-projective": feature_projective, "top": cached_top}
            contenders = same_network(SAME[case]) if case in SAME else special[case]()
            base = next(iter(contenders))
        else:
            contenders, base = {}, "plain"
            for name in ["plain", *(n for n in options.only.split(";") if n != "plain")]:
                try:
                    step = CONTENDERS[name](*copy.deepcopy(CASES[case]()))
                    step()
                    contenders[name] = step
                except Exception as error:  # a peer's failure is a result
                    refused[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
        print(f"\n{case}: {options.rounds} interleaved rounds")
        measured = interleaved(contenders, base, options.rounds, time.process_time if options.processor_time else time.perf_counter)
        least = min(measured[base].seconds)
        for name, timed in measured.items():
            peak = None
            if not options.no_memory and case in CASES:
                peak = peak_memory_of("benchmarks.clipping", case, "--peak-of", name, "--threads", str(options.threads))
            memory = f"   peak {peak:7.0f} MiB" if peak else ""
            print(f"  {name:20s} {timed}   of the least {min(timed.seconds) / least:6.3f}{memory}", flush=True)
        for name, reason in refused.items():
            print(f"  {name:20s} cannot train it: {reason}")


if __name__ == "__main__":
    main()
