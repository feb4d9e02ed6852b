"""Pictures of people in given poses: a generator that never sees one, and a critic that does, under the clip and with noise.

The critic's steps are the loop's: real pictures make the noised half, generated ones the exact half. The generator's steps follow as
post-processing. What is protected is how people look; their poses are public, and stay in the dataset whoever leaves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.data.heatmaps import pose_heatmaps
from halfmask.data.picture_sets import load_picture_test, load_pictures, load_public_pictures
from halfmask.data.pictures import UNITS, PictureRecords
from halfmask.data.records import PRIVATE, Datasets, Records
from halfmask.data.tables import Table
from halfmask.errors import HalfmaskError
from halfmask.metrics.generated import METRICS, judge_generated
from halfmask.metrics.names import MetricInfo
from halfmask.metrics.pckh import JOINT_NAMES
from halfmask.models.checkpoints import load_into, read_state
from halfmask.models.posegan import SHAPES, PoseGAN, load_start, pair_losses
from halfmask.tasks.base import Batch, Graph, PostProcessing, Report, Scores, Task, register
from halfmask.tasks.generate_means import MeansCritic
from halfmask.tasks.generate_settings import GENERATE_GROUPS, GenerateModelConfig
from halfmask.views.constant import Constant

if TYPE_CHECKING:
    from halfmask.gradients.engine import ClippingEngine
    from halfmask.training.public import PublicHalf
    from halfmask.training.setup import Setup

# Of the uniform numbers of a showing, one chooses a pose; pairs of the others make the noise z.
_LARGEST_LATENT = 128
NUMBERS = 1 + 2 * _LARGEST_LATENT


@register
class GenerateTask(Task):
    """A generator of pictures, conditioned on poses, and its critic."""

    name = "generate"
    shards = True
    units = UNITS
    groups = GENERATE_GROUPS
    numbers = NUMBERS
    method = "dpsgd"
    methods = ("non-private", "public-only", "dpsgd", "projected")
    compared = ("public-only", "dpsgd")
    cached = ()
    stays = "the pose of every person, and what they do"
    labels = "where each person's joints are, and what they do"
    metrics: ClassVar[Mapping[str, MetricInfo]] = METRICS
    drawn = "People drawn anew in the poses of test people"

    def __init__(self, config: Any):
        super().__init__(config)
        self._poses: tuple[Table, Tensor] | None = None

    def view(self) -> Constant:
        """Nothing of a picture is public; its pose, which is a label here, is."""
        return Constant()

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        """−D(real picture); or D(generated) − D(real) of a pair, whose generated picture comes from public numbers of the showing."""
        assert isinstance(model, PoseGAN)
        config: GenerateModelConfig = self.config.model
        pictures = as_numbers(batch["image"])
        if isinstance(model.critic, MeansCritic):
            return -model.critic(pictures, batch["joints"])
        if config.critic == "means":
            raise HalfmaskError("the means of a finished run are not opened with it: there is no loss to take")
        maps = self._heatmaps(model, batch["joints"]) if config.conditional else None
        if config.clip == "real":
            return -model.critic(pictures, maps)
        # Where a loss is tried out there are no numbers: a picture of nobody's pose, never of this one's.
        joints = batch.get("joints of another", torch.zeros_like(batch["joints"]))
        noise = batch.get("noise", torch.zeros(len(joints), model.shape.latent, device=joints.device))
        other = self._heatmaps(model, joints)
        with torch.no_grad():
            drawn = model.generate(noise, other)
        return pair_losses(model.critic, pictures, drawn, maps, other if config.conditional else None)

    def change(self, records: Records, batch: Batch, uniforms: Tensor) -> Batch:
        """Real pictures stay as they are. For pairs, each has noise and somebody's pose beside it, chosen by public numbers of its own."""
        if self.config.model.clip != "pair":
            return batch
        if self._poses is None or self._poses[0] is not records.targets:
            self._poses = records.targets, torch.from_numpy(records.targets.rows(np.arange(len(records)))["joints"]).float()
        poses = self._poses[1]
        chosen = (uniforms[:, 0].double() * len(poses)).long().clamp(max=len(poses) - 1)
        return batch | {"joints of another": poses[chosen], "noise": _normal(uniforms[:, 1:])[:, : self._latent]}

    @property
    def _latent(self) -> int:
        return SHAPES[self.config.model.size].latent

    def _heatmaps(self, model: PoseGAN, joints: Tensor) -> Tensor:
        return pose_heatmaps(joints, (model.height, model.width), self.config.model.spread * model.height)

    def load(self, report: Report | None = None) -> Datasets:  # noqa: D102
        return load_pictures(self.config.data, report, self.shard)

    def load_test(self, report: Report | None = None) -> PictureRecords:  # noqa: D102
        return load_picture_test(self.config.data, report)

    def load_public(self, report: Report | None = None) -> tuple[PictureRecords, PictureRecords | None]:  # noqa: D102
        return load_public_pictures(self.config.data, report)

    def build(self, data: Datasets) -> PoseGAN:  # noqa: D102
        config, records = self.config.model, data.private
        assert isinstance(records, PictureRecords)
        model = PoseGAN(config.size, len(records.joint_names), *records.size, conditional=config.conditional)
        if self.config.pretrain.encoder:
            from halfmask.tasks.generate_pretraining import Encoder

            model.encoder = Encoder(model.shape.embedding, *records.size)
        if config.weights is not None and self.config.strategy != "scratch":
            fresh = {name: tensor.clone() for name, tensor in model.critic.state_dict().items()}
            load_start(model, config.weights)
            if config.fresh_critic:
                model.critic.load_state_dict(fresh)
        if config.critic == "means":
            model.critic = MeansCritic(records.skeleton.edges, *records.size)  # type: ignore[assignment]
        return model

    def open(self, weights: Path) -> PoseGAN:
        """The generator of a finished run, and its critic, which an audit attacks; means are of use to nobody any more."""
        config, data = self.config.model, self.config.data
        state = read_state(weights)
        shape = SHAPES[config.size]
        # The paper's decoder is given the appearance beside the heatmaps.
        joints = state["generator.decoder.down.0.weight"].shape[1] - (0 if shape.everywhere else shape.embedding)
        model = PoseGAN(config.size, joints, data.height, data.width, config.conditional)
        self.trainable(model, "full")
        for part in ("generator", "critic") if config.critic == "network" else ("generator",):
            held = {name.removeprefix(f"{part}."): tensor for name, tensor in state.items() if name.startswith(f"{part}.")}
            # A file of a warm start may hold the generator alone.
            if held or part == "generator":
                load_into(model.get_submodule(part), held, str(weights))
        return model

    def prepare(self, model: nn.Module, public: Records | None) -> None:
        """Centre and scale of released means come from public people."""
        assert isinstance(model, PoseGAN)
        if not isinstance(model.critic, MeansCritic):
            return
        if public is None or len(public) < 50:
            raise HalfmaskError(
                f"model.critic=means takes its centre and scale from public people, and there are {0 if public is None else len(public)}: "
                "expected at least 50; add records with split 'public', or use model.critic=network"
            )
        model.critic.fit((as_numbers(batch["image"]), batch["joints"].float()) for batch in public.batches())

    def trainable(self, model: nn.Module, strategy: str) -> None:
        """The critic alone is trained by the loop: the generator follows it without being shown anybody."""
        assert isinstance(model, PoseGAN)
        if strategy not in ("full", "scratch"):
            raise HalfmaskError(f"strategy '{strategy}': the critic of the task 'generate' is trained as a whole. Use full")
        for parameter in model.parameters():
            parameter.requires_grad = False
        for parameter in model.critic.parameters():
            parameter.requires_grad = True

    def optimiser(self, weights: list[nn.Parameter]) -> torch.optim.Optimizer | None:
        """Means are taken as they are released: from 0, by one step of length 1."""
        return torch.optim.SGD(weights, lr=1.0) if self.config.model.critic == "means" else None

    def exact_half(self, setup: Setup, engine: ClippingEngine) -> PublicHalf:
        """Generated pictures, by public randomness alone."""
        from halfmask.tasks.generate_halves import FakeHalf

        return FakeHalf(setup, engine)

    def post_processing(self, setup: Setup) -> PostProcessing | None:
        """The critic's bound and the generator's steps."""
        from halfmask.tasks.generate_halves import GeneratorSteps
        from halfmask.tasks.generate_matching import Matching

        if self.config.pretrain.encoder:
            return None
        return Matching(setup) if self.config.model.critic == "means" else GeneratorSteps(setup)

    def pretraining(self, setup: Setup, engine: ClippingEngine) -> PublicHalf | None:  # noqa: D102
        from halfmask.tasks.generate_pretraining import FromPictures

        return FromPictures(setup, engine)

    @torch.no_grad()
    def generated(self, model: PoseGAN, joints: Tensor, seed: int = 0, size: int = 64, noise: Tensor | None = None) -> np.ndarray:
        """A picture for each pose, N×3×H×W bytes; whom it shows is drawn by the seed, or told by the noise (N×latent)."""
        generator = torch.Generator().manual_seed(seed)
        device, found = next(model.parameters()).device, []
        for place, some in enumerate(joints.float().split(size)):
            if noise is None:
                drawn = torch.randn(len(some), model.shape.latent, generator=generator)
            else:
                drawn = noise[place * size : place * size + len(some)]
            pictures = model.generate(drawn.to(device), self._heatmaps(model, some.to(device)))
            found.append(((pictures + 1) * 127.5).round().clamp(0, 255).byte().cpu().numpy())
        return np.concatenate(found)

    def graph(self, model: nn.Module, confidence: Mapping[str, Any], flip_test: bool = False) -> Graph:
        """The generator alone: nobody needs the critic to draw people."""
        from halfmask.tasks.graphs import generator_graph

        assert isinstance(model, PoseGAN)
        return generator_graph(model, self.config.model.spread * model.height)

    def watched_loss(self, model: nn.Module, records: Records, device: torch.device | str = "cpu") -> float:
        """How far pictures drawn in the poses of public people are from theirs in coarse colours, as a share of the range of colours.

        A critic's value says little, and people who look unlike public ones are what is wanted: so this may rise, and is no sign that a
        run came to nothing.
        """
        assert isinstance(model, PoseGAN)
        everyone = np.arange(min(len(records), 256))
        real = records.part(PRIVATE).rows(everyone)["image"]
        drawn = self.generated(model, torch.from_numpy(records.targets.rows(everyone)["joints"]))
        one, other = (_coarse(pictures) for pictures in (real, drawn))
        return float(((one.mean(0) - other.mean(0)).square() + (one.std(0) - other.std(0)).square()).mean().sqrt() / 255)

    def score(  # noqa: D102
        self,
        model: nn.Module,
        records: Records,
        source: str = PRIVATE,
        device: torch.device | str = "cpu",
        flip_test: bool = True,
    ) -> Scores:
        assert isinstance(model, PoseGAN) and isinstance(records, PictureRecords)
        everyone = np.arange(len(records))
        joints = records.targets.rows(everyone)["joints"]
        real, truth = records.part(PRIVATE).rows(everyone)["image"], records.truth.rows(everyone)
        # The judge is a pose network that knows these joints; other ones it cannot place.
        known = joints if records.joint_names == JOINT_NAMES else None
        drawn = self.generated(model, torch.from_numpy(joints))
        return Scores(judge_generated(drawn, real, known, truth.get("head_boxes")).metrics)

    def pictures(self, model: nn.Module | None, records: Records, device: torch.device | str = "cpu") -> list[np.ndarray]:
        """Test people, or somebody else drawn in their poses."""
        everyone = np.arange(len(records))
        shown = records.part(PRIVATE).rows(everyone)["image"]
        if model is not None:
            assert isinstance(model, PoseGAN)
            shown = self.generated(model, torch.from_numpy(records.targets.rows(everyone)["joints"]))
        return [np.repeat(np.repeat(picture.transpose(1, 2, 0), 4, 0), 4, 1) for picture in shown]

    def public_facts(self, data: Datasets) -> list[str]:
        """Where poses come from, and whom ε speaks of."""
        records = data.private
        assert isinstance(records, PictureRecords)
        facts = [f"that poses come from {records.poses}"] if records.poses else []
        facts.append(self._to_other_units())
        facts.append(
            "that ε speaks of the people the generator was trained with: of somebody whose picture it is later given a pose from, what it "
            "draws shows the pose"
        )
        return facts

    def audited(self) -> dict[str, Any]:
        """How pictures are clipped and what bounds the critic; the generator follows every step, so that each can be looked at."""
        if self.config.model.critic == "means":
            raise HalfmaskError(
                "means are the gradient of one linear layer, released once with everyone in the batch: 'halfmask audit mechanism --method "
                "dpsgd' sends canaries through just that, and there is no loss besides to try"
            )
        quick = {"weights": None, "critic_steps": 1, "generator_steps": 1, "generator_batch": 4}
        return {"model": asdict(self.config.model) | quick, "augment": {"times": self.config.augment.times}}

    def most_in(self, unit: str) -> dict[str, int]:  # noqa: D102
        found: dict[str, int] = self.config.data.most_in(unit)
        return found

    def within(self, unit: str) -> tuple[str, ...]:
        """A picture shows one person alone."""
        return ("image",) if unit == "subject" else ()

    def _to_other_units(self) -> str:
        """Whom the promise is to; what that is worth to an image or to a person is said in numbers, or why not."""
        config = self.config
        if config.unit == "subject":
            pld = "" if config.accountant == "pld" else ", which this accountant does not state (--accountant pld does)"
            return (
                "that the promise is to one person with all of their images. One of these alone, left out or exchanged, is covered by ε of "
                f"a person who is exchanged for another (replace-one){pld}"
            )
        words = "that the promise is to one image: a person of several images has less of it. Train with --unit subject to protect people"
        if config.adjacency == "replace-one":
            return f"{words}. What it is worth to a person is accounted under zero-out alone, so no ε is stated there"
        if not self.most_in("image"):
            return f"{words}. Nothing but private images bounds those of one (data.pictures_per_subject would), so no ε is stated there"
        return words


def as_numbers(pictures: Tensor) -> Tensor:
    """Bytes as numbers from −1 to 1."""
    return pictures if pictures.is_floating_point() else pictures.float() / 127.5 - 1


def _normal(uniforms: Tensor) -> Tensor:
    """Standard normal numbers from pairs of uniform ones (Box and Muller)."""
    first, second = uniforms[:, 0::2].double(), uniforms[:, 1::2].double()
    count = min(first.shape[1], second.shape[1])
    length = torch.sqrt(-2 * torch.log1p(-first[:, :count]))
    return (length * torch.cos(2 * torch.pi * second[:, :count])).float()


def _coarse(pictures: np.ndarray) -> Tensor:
    return nn.functional.adaptive_avg_pool2d(torch.from_numpy(np.ascontiguousarray(pictures)).float(), (8, 6)).flatten(1)
