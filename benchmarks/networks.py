"""Networks to measure the engine on: some of plain torch layers, and eleven that people bring.

`python -m benchmarks.networks` prints, for each of the eleven (small, random, in double precision), whether the gradients of the engine and
of Opacus' hooks are those taken one record at a time.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = dict[str, Tensor]


class ResidualBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(32, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(32, outputs)
        self.shortcut = (
            nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.GroupNorm(32, outputs))
            if stride != 1 or inputs != outputs
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


def resnet18(classes: int = 10) -> nn.Sequential:
    """ResNet-18 with GroupNorm."""
    widths = [64, 64, 128, 256, 512]
    blocks = [
        ResidualBlock(widths[stage] if i == 0 else widths[stage + 1], widths[stage + 1], 2 if i == 0 and stage > 0 else 1)
        for stage in range(4)
        for i in range(2)
    ]
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.GroupNorm(32, 64),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, classes),
    )


class TransformerBlock(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        x = x + self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, width))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x))))


class TorchViT(nn.Module):
    """ViT-S/16 of torch's own transformer layers, with a class token and positions that train."""

    def __init__(self, size: int = 224, patch: int = 16, width: int = 384, depth: int = 12, heads: int = 6, classes: int = 10):
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class ViT(nn.Module):
    """ViT-S/16 with fixed positions and mean pooling: bare parameters stop some contenders."""

    def __init__(self, size: int = 224, patch: int = 16, width: int = 384, depth: int = 12, heads: int = 6, classes: int = 10):
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.register_buffer("positions", torch.randn(1, (size // patch) ** 2, width) * 0.02)
        self.blocks = nn.ModuleList([TransformerBlock(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


_VIT = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "image_size": 16,
    "patch_size": 8,
}
_WINDOWS = {"image_size": 32, "patch_size": 4, "embed_dim": 12, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
_WORDS = {"vocab_size": 50, "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
_PYRAMID = {
    "num_encoder_blocks": 2,
    "depths": [1, 1],
    "sr_ratios": [2, 1],
    "hidden_sizes": [8, 16],
    "patch_sizes": [7, 3],
    "strides": [4, 2],
    "num_attention_heads": [1, 2],
    "mlp_ratios": [2, 2],
}
# The class of the network and of its configuration in the package `transformers`, what it is configured with, and what a record is.
BROUGHT: dict[str, tuple[str, str, dict[str, Any], tuple[int, ...]]] = {
    "ViT": ("ViTForImageClassification", "ViTConfig", _VIT, (3, 16, 16)),
    "Swin": ("SwinForImageClassification", "SwinConfig", _WINDOWS, (3, 32, 32)),
    "Swinv2": ("Swinv2ForImageClassification", "Swinv2Config", _WINDOWS, (3, 32, 32)),
    "ConvNeXt": (
        "ConvNextForImageClassification",
        "ConvNextConfig",
        {"hidden_sizes": [8, 16], "depths": [2, 2], "num_stages": 2},
        (3, 32, 32),
    ),
    "DINOv2": (
        "Dinov2ForImageClassification",
        "Dinov2Config",
        {key: value for key, value in _VIT.items() if key != "intermediate_size"},
        (3, 16, 16),
    ),
    "BEiT": (
        "BeitForImageClassification",
        "BeitConfig",
        {**_VIT, "use_relative_position_bias": True, "use_absolute_position_embeddings": True},
        (3, 16, 16),
    ),
    "Segformer": ("SegformerForImageClassification", "SegformerConfig", _PYRAMID, (3, 32, 32)),
    "BERT": (
        "BertForSequenceClassification",
        "BertConfig",
        {
            **_WORDS,
            "hidden_size": 24,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 32,
            "max_position_embeddings": 16,
        },
        (9,),
    ),
    "GPT-2": ("GPT2LMHeadModel", "GPT2Config", {**_WORDS, "n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 16}, (9,)),
    "VideoMAE": ("VideoMAEForVideoClassification", "VideoMAEConfig", {**_VIT, "num_frames": 4}, (4, 3, 16, 16)),
    "ResNet": (
        "ResNetForImageClassification",
        "ResNetConfig",
        {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
        (3, 32, 32),
    ),
}


def brought(name: str, records: int = 5) -> tuple[nn.Module, Callable[[nn.Module, Batch], Tensor], Batch]:
    """One of the eleven, at random, in double precision and at rest, with a loss and some random records."""
    import transformers

    network, configuration, options, shape = BROUGHT[name]
    torch.manual_seed(0)
    model = getattr(transformers, network)(getattr(transformers, configuration)(**options, num_labels=3)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # much of a fresh network is zero, and would hide what is wrong with the rest
            parameter.add_(0.1 * torch.randn_like(parameter))
    x = torch.randint(1, 50, (records, *shape)) if len(shape) == 1 else torch.randn(records, *shape, dtype=torch.float64)
    return model, brought_loss, {"x": x, "y": torch.randint(0, 3, (records,))}


def brought_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Cross-entropy of the label, or of the next word."""
    logits = model(batch["x"]).logits
    if logits.dim() == 3:
        return F.cross_entropy(logits[:, :-1].transpose(1, 2), batch["x"][:, 1:], reduction="none").sum(1)
    return F.cross_entropy(logits, batch["y"], reduction="none")


def one_at_a_time(model: nn.Module, loss_fn: Callable[..., Tensor], batch: Batch) -> dict[str, Tensor]:
    """The gradients of each record, by parameter."""
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    parameters = [p for p in model.parameters() if p.requires_grad]
    rows = []
    for i in range(len(batch["y"])):
        loss = loss_fn(model, {key: value[i : i + 1] for key, value in batch.items()}).sum()
        rows.append(torch.autograd.grad(loss, parameters, materialize_grads=True))
    return {name: torch.stack(each) for name, each in zip(names, zip(*rows, strict=True), strict=True)}


def by_opacus(name: str) -> str:
    """What Opacus' hooks make of one of the eleven."""
    from opacus import GradSampleModule

    model, loss_fn, batch = brought(name)
    expected = one_at_a_time(copy.deepcopy(model), loss_fn, batch)
    at_rest = loss_fn(model, batch)
    _train_without_chance(model)
    if not torch.allclose(loss_fn(model, batch), at_rest):
        raise RuntimeError(f"{name} is another network when it trains: the comparison would not be fair")
    try:
        wrapped = GradSampleModule(model, loss_reduction="sum")
        loss_fn(wrapped, batch).sum().backward()
    except Exception as error:  # a peer's failure is a result
        return f"refused: {type(error).__name__}: {' '.join(str(error).split())[:110]}"
    largest = max(float(g.abs().max()) for g in expected.values())
    missing, worst = [], 0.0
    for key, parameter in model.named_parameters():
        found = getattr(parameter, "grad_sample", None)
        if not isinstance(found, Tensor) or found.shape != expected[key].shape:
            missing.append(key)
        else:
            worst = max(worst, float((found - expected[key]).abs().max()) / max(float(expected[key].abs().max()), 1e-6 * largest))
    if missing:
        return f"no gradient, or one of another shape, for {len(missing)} of {len(expected)} parameters, such as {missing[0]}"
    return f"error {worst:.1e}"


def _train_without_chance(model: nn.Module) -> None:
    """Opacus' hooks look at networks in training mode only: put it into that, with no dropout and with fixed statistics."""
    for module in model.modules():
        module.training = not isinstance(module, nn.modules.batchnorm._BatchNorm)
        for holder in (module, getattr(module, "config", None)):
            for key, value in list(vars(holder).items()) if holder is not None else []:
                if isinstance(value, float) and ("drop" in key or (key == "p" and isinstance(module, nn.Dropout))):
                    setattr(holder, key, 0.0)


def main() -> None:
    from halfmask.gradients.check import check_model

    warnings.filterwarnings("ignore")
    for name in BROUGHT:
        found = check_model(*brought(name))
        print(
            f"{name:10s} ours: {found.path}, error {max(found.norms, *found.errors.values()):.1e}   Opacus: {by_opacus(name)}", flush=True
        )


if __name__ == "__main__":
    main()
