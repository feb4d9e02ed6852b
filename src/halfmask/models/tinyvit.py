"""TinyViT (Wu et al., ECCV 2022): a four-stage hybrid of convolutions and windowed attention.

Stage 1 is inverted residual convolutions; stages 2–4 are windowed attention with a depthwise convolution between attention
and MLP. Between stages the resolution halves (stage 4 may keep it, `stage4_stride=1`). Parameter names are timm's, so public
checkpoints load as they are.

Two things differ from a network written for ordinary training, because the model is trained with differential privacy:

* every normalisation with batch statistics is a `PublicBatchNorm2d`, whose statistics come from public people and never from a
  private batch: a statistic of the batch would mix people, and no clip of one person's gradient could undo that;
* nothing in the forward pass depends on another record of the batch, so per-record gradients are well defined.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.errors import HalfmaskError, unknown_name
from halfmask.models.checkpoints import load_into, read_state


@dataclass(frozen=True)
class TinyViTShape:
    """The sizes that make one TinyViT differ from another."""

    widths: tuple[int, int, int, int]
    depths: tuple[int, int, int, int]
    heads: tuple[int, int, int, int]
    windows: tuple[int, int, int, int] = (7, 7, 14, 7)
    mlp_ratio: int = 4
    conv_expand: int = 4


SHAPES: dict[str, TinyViTShape] = {
    # `nano` is ours, sized for a laptop: windows that divide the 256×192 grid below stage 4, and one window over all of stage 4.
    "nano": TinyViTShape((16, 32, 80, 128), (1, 1, 3, 1), (1, 2, 4, 4), (4, 8, 4, 8), mlp_ratio=2, conv_expand=2),
    "5m": TinyViTShape((64, 128, 160, 320), (2, 2, 6, 2), (2, 4, 5, 10)),
    "11m": TinyViTShape((64, 128, 256, 448), (2, 2, 6, 2), (2, 4, 8, 14)),
    "21m": TinyViTShape((96, 192, 384, 576), (2, 2, 6, 2), (3, 6, 12, 18)),
}


class PublicBatchNorm2d(nn.Module):
    """Batch normalisation whose statistics are public constants.

    `train()` does not change it. Only `learning_statistics`, used while every record in the batch is public, lets it see a batch.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, channels: int, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.eps = eps
        self.momentum = momentum
        self.sees_batches = False

    def forward(self, x: Tensor) -> Tensor:
        """Normalise by the public statistics (by the batch's own only inside `learning_statistics`)."""
        return F.batch_norm(
            x,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.sees_batches,
            self.momentum,
            self.eps,
        )

    def record_gradients(self, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Tensor]:
        """Gradients of scale and shift for each record."""
        mean, scale = self.running_mean.view(-1, 1, 1), torch.rsqrt(self.running_var + self.eps).view(-1, 1, 1)
        # A few images at a time: what is normalised stays in the processor's cache until it is added up.
        at_once = max(1, (1 << 18) // inputs[0].numel()) if inputs.device.type == "cpu" else len(inputs)
        stretches = zip(inputs.split(at_once), output_gradient.split(at_once), strict=True)
        products = torch.cat([(x - mean).mul_(scale).mul_(g).sum((2, 3)) for x, g in stretches])

        def per_record(x: Tensor) -> Tensor:
            return x.view(records, -1, x.shape[1]).sum(1)

        return {"weight": per_record(products), "bias": per_record(output_gradient.sum((2, 3)))}


@contextmanager
def learning_statistics(model: nn.Module, momentum: float = 0.1) -> Iterator[None]:
    """Let the batch normalisations of `model` learn their statistics. Every record shown to it meanwhile must be public."""
    norms = [module for module in model.modules() if isinstance(module, PublicBatchNorm2d)]
    for norm in norms:
        norm.sees_batches, norm.momentum = True, momentum
    try:
        yield
    finally:
        for norm in norms:
            norm.sees_batches = False


def _norm(kind: str, channels: int) -> nn.Module:
    if kind == "batch":
        return PublicBatchNorm2d(channels)
    if kind == "group":
        return nn.GroupNorm(max(g for g in (8, 4, 2, 1) if channels % g == 0), channels)
    raise unknown_name("normalisation", kind, ("batch", "group"))


class ConvNorm(nn.Module):
    """Convolution without bias, then normalisation.

    Where both are frozen, the normalisation is a constant scale and shift and goes into the convolution's weights: one pass over the
    activations less, forwards and backwards. That is open to a private model alone, whose statistics never change.
    """

    folds = True

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, norm: str = "batch"):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = _norm(norm, outputs)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if not (self.folds and isinstance(self.bn, PublicBatchNorm2d) and self._frozen()):
            return self.bn(self.conv(x))
        scale = self.bn.weight * torch.rsqrt(self.bn.running_var + self.bn.eps)
        shift = self.bn.bias - self.bn.running_mean * scale
        weight = self.conv.weight * scale.view(-1, 1, 1, 1)
        return F.conv2d(x, weight, shift, self.conv.stride, self.conv.padding, groups=self.conv.groups)

    def _frozen(self) -> bool:
        return not self.bn.sees_batches and not any(p.requires_grad for p in self.parameters())


class PatchEmbed(nn.Module):
    """Two strided convolutions: the image at a quarter of its resolution."""

    def __init__(self, width: int, norm: str):
        super().__init__()
        self.conv1 = ConvNorm(3, width // 2, 3, 2, norm=norm)
        self.conv2 = ConvNorm(width // 2, width, 3, 2, norm=norm)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.conv2(F.gelu(self.conv1(x)))


class MBConv(nn.Module):
    """Inverted residual block."""

    def __init__(self, width: int, expand: int, norm: str):
        super().__init__()
        inner = width * expand
        self.conv1 = ConvNorm(width, inner, 1, norm=norm)
        self.conv2 = ConvNorm(inner, inner, 3, groups=inner, norm=norm)
        self.conv3 = ConvNorm(inner, width, 1, norm=norm)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        y = F.gelu(self.conv1(x))
        y = F.gelu(self.conv2(y))
        return F.gelu(x + self.conv3(y))


class PatchMerging(nn.Module):
    """The step between stages: more channels, (usually) half the resolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: str):
        super().__init__()
        self.conv1 = ConvNorm(inputs, outputs, 1, norm=norm)
        self.conv2 = ConvNorm(outputs, outputs, 3, stride, groups=outputs, norm=norm)
        self.conv3 = ConvNorm(outputs, outputs, 1, norm=norm)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        y = F.gelu(self.conv1(x))
        y = F.gelu(self.conv2(y))
        return self.conv3(y)


class Attention(nn.Module):
    """Multi-head attention inside one window, with a learned bias for each |offset| between two tokens."""

    bias_index: Tensor

    def __init__(self, width: int, heads: int, window: int):
        super().__init__()
        self.heads = heads
        self.head_width = width // heads
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        rows, columns = torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")
        cells = torch.stack([rows.flatten(), columns.flatten()], 1)
        offsets = (cells[:, None] - cells[None]).abs()
        # Row-major order of first appearance seen from the first token, as in public checkpoints.
        self.register_buffer("bias_index", offsets[..., 0] * window + offsets[..., 1], persistent=False)
        self.attention_biases = nn.Parameter(torch.zeros(heads, window * window))
        # Where the gradient of the biases can be read off, record by record.
        self.scores = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Attend within each window; `x` is (windows, tokens, width)."""
        windows, tokens, width = x.shape
        qkv = self.qkv(self.norm(x)).view(windows, tokens, self.heads, 3 * self.head_width)
        q, k, v = qkv.permute(0, 2, 1, 3).split(self.head_width, dim=-1)
        scores = self.scores((q @ k.transpose(-2, -1)) * self.head_width**-0.5 + self.attention_biases[:, self.bias_index])
        mixed = (scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(windows, tokens, width)
        return self.proj(mixed)

    tap = "scores"

    def record_gradients(self, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Tensor]:
        """Gradients of the attention biases for each record: those of the scores, added up by offset."""
        summed = output_gradient.view(records, -1, *output_gradient.shape[1:]).sum(1).flatten(2)
        index = self.bias_index.flatten().expand_as(summed)
        biases = summed.new_zeros(records, *self.attention_biases.shape).scatter_add_(2, index, summed)
        return {"attention_biases": biases}


class Mlp(nn.Module):
    """The feed-forward half of a block, normalised first."""

    def __init__(self, width: int, ratio: int):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, width * ratio)
        self.fc2 = nn.Linear(width * ratio, width)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.fc2(F.gelu(self.fc1(self.norm(x))))


class Block(nn.Module):
    """Windowed attention, a 3×3 depthwise convolution that crosses windows, and an MLP."""

    def __init__(self, width: int, heads: int, window: int, mlp_ratio: int, norm: str):
        super().__init__()
        self.window = window
        self.attn = Attention(width, heads, window)
        self.local_conv = ConvNorm(width, width, 3, groups=width, norm=norm)
        self.mlp = Mlp(width, mlp_ratio)

    def _attend(self, x: Tensor) -> Tensor:
        n, height, width, channels = x.shape
        w = self.window
        pad_bottom, pad_right = -height % w, -width % w
        if pad_bottom or pad_right:
            x = F.pad(x, (0, 0, 0, pad_right, 0, pad_bottom))
        rows, columns = (height + pad_bottom) // w, (width + pad_right) // w
        x = x.view(n, rows, w, columns, w, channels).transpose(2, 3).reshape(n * rows * columns, w * w, channels)
        x = self.attn(x)
        x = x.view(n, rows, columns, w, w, channels).transpose(2, 3).reshape(n, rows * w, columns * w, channels)
        return x[:, :height, :width]

    def forward(self, x: Tensor) -> Tensor:
        """Map N×C×H×W to the same shape."""
        x = x.permute(0, 2, 3, 1)
        x = (x + self._attend(x)).permute(0, 3, 1, 2)
        x = self.local_conv(x)
        x = x.permute(0, 2, 3, 1)
        return (x + self.mlp(x)).permute(0, 3, 1, 2)


class Stage(nn.Module):
    """A downsampling step (none in stage 1) and a row of blocks."""

    def __init__(self, downsample: nn.Module, blocks: list[nn.Module]):
        super().__init__()
        self.downsample = downsample
        self.blocks = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = self.downsample(x)
        for block in self.blocks:
            x = block(x)
        return x


class TinyViT(nn.Module):
    """The backbone: an image in, four feature maps out.

    Args:
        size: one of `SHAPES`.
        stage4_stride: 2 as published; 1 keeps stage 4 at stage 3's resolution (as checkpoints made for dense prediction do).
        norm: `batch` (public statistics) or `group` (no statistics at all; for training from nothing).
    """

    def __init__(self, size: str = "5m", stage4_stride: int = 2, norm: str = "batch"):
        super().__init__()
        if size not in SHAPES:
            raise unknown_name("TinyViT size", size, SHAPES)
        if stage4_stride not in (1, 2):
            raise HalfmaskError(f"stage4_stride is {stage4_stride}: expected 1 or 2")
        shape = SHAPES[size]
        self.size, self.widths, self.stage4_stride = size, shape.widths, stage4_stride
        self.patch_embed = PatchEmbed(shape.widths[0], norm)
        stages = [
            Stage(
                nn.Identity(),
                [MBConv(shape.widths[0], shape.conv_expand, norm) for _ in range(shape.depths[0])],
            )
        ]
        for i in (1, 2, 3):
            stride = stage4_stride if i == 3 else 2
            merge = PatchMerging(shape.widths[i - 1], shape.widths[i], stride, norm)
            blocks: list[nn.Module] = [
                Block(shape.widths[i], shape.heads[i], shape.windows[i], shape.mlp_ratio, norm) for _ in range(shape.depths[i])
            ]
            stages.append(Stage(merge, blocks))
        self.stages = nn.ModuleList(stages)
        self.apply(_initialise)

    def stages_forward(self, x: Tensor) -> list[Tensor]:
        """The four stage outputs, each N×C×H×W."""
        outputs = []
        x = self.patch_embed(x)
        for stage in self.stages:
            x = stage(x)
            outputs.append(x)
        return outputs

    def lower(self, x: Tensor) -> Tensor:
        """Everything below stage 4: the part that the strategies `finetune` and `top` hold frozen."""
        x = self.patch_embed(x)
        for stage in self.stages[:3]:
            x = stage(x)
        return x

    def upper(self, features: Tensor) -> Tensor:
        """Stage 4 alone, on what `lower` gave."""
        return self.stages[3](features)

    def forward(self, x: Tensor) -> Tensor:
        """The last stage's output."""
        return self.upper(self.lower(x))

    def load_weights(self, path: str | Path) -> None:
        """Load a public checkpoint by timm's names (safetensors, or `.pt`/`.pth` read without running code from it).

        Classifier weights in the file are passed over; anything else that does not fit is an error, so a checkpoint of another
        architecture is never half loaded.
        """
        load_into(self, read_state(path), str(path), ignore=("head.",))


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Conv2d):
        nn.init.kaiming_normal_(module.weight, mode="fan_out")
