"""Two networks of plain torch layers that every contender can train."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


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
