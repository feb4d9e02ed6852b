"""MViTv2: the published network to the last digits, and exactly that network where some tokens are nothing at all."""

from __future__ import annotations

import json
import zlib
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.engine import ClippingEngine
from halfmask.models.checkpoints import read_state
from halfmask.models.mvit import PATCH, PATCH_STRIDE, SHAPES, Block, MViT, last_normalisations
from halfmask.models.mvit_attention import Grid, pooled_presence, with_class
from halfmask.views.tokens import Tokens

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
FRAMES, SIDE, CLASSES = 4, 32, 5


@pytest.fixture(scope="module")
def small() -> MViT:
    """A nano of small clips, in double precision, whose weights are far from where they begin."""
    torch.manual_seed(0)
    model = MViT("nano", CLASSES, FRAMES, SIDE).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def clips(count: int = 3, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, FRAMES, SIDE, SIDE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_tokens(count: int = 3, share: float = 0.4, seed: int = 1) -> Tensor:
    """Of the first clip none in its second half, of the third few in a corner: pooled, some are absent still."""
    tokens = torch.rand(count, 2, 8, 8, generator=torch.Generator().manual_seed(seed)) < share
    tokens[0, 1] = False
    tokens[2, :, 3:] = tokens[2, :, :, 3:] = False
    return tokens


@pytest.mark.skipif(not FIXTURES.is_dir(), reason="the reference outputs are not part of the repository")
def test_the_published_network_is_computed_to_four_digits_and_more() -> None:
    names = json.loads((FIXTURES / "mvitv2s_names.json").read_text())
    model = MViT("s").eval()
    state = model.state_dict()
    assert {name: list(value.shape) for name, value in state.items()} == names
    assert sum(parameter.numel() for parameter in model.parameters()) == 34_537_744
    for name, shape in names.items():
        drawn = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape).astype(np.float32)
        normalises = ".norm" in name or name.startswith("norm")
        value = 0.05 * drawn + (name.endswith("weight")) if normalises else 0.02 * drawn
        state[name].copy_(torch.from_numpy(value.astype(np.float32)))
    expected = np.load(FIXTURES / "mvitv2s_reference.npz")
    x = torch.from_numpy(np.random.RandomState(7).standard_normal((1, 3, 16, 224, 224)).astype(np.float32))
    with torch.no_grad():
        tokens, present = model.embed(x), None
        for number, block in enumerate(model.blocks):
            tokens, present = block(tokens, present)
            if f"block{number}_mean" in expected:
                np.testing.assert_allclose(tokens.mean(1)[0].numpy(), expected[f"block{number}_mean"].reshape(-1), atol=1e-4)
                np.testing.assert_allclose(tokens[0, :4].numpy(), expected[f"block{number}_first"].reshape(4, -1), atol=1e-4)
        logits = model.head(model.norm(tokens[:, 0]))
    np.testing.assert_allclose(logits.numpy(), expected["logits"], atol=1e-4)


def test_the_part_that_is_trained_has_the_published_size() -> None:
    with torch.device("meta"):
        model = MViT("s", classes=60)
    # The head's 60 × 769, the last normalisation, and five of each of two blocks: the first of them takes the step from 384 to 768.
    trained = sum(parameter.numel() for parameter in last_normalisations(model))
    assert trained == 46_140 + 1_536 + (768 + 1_536 + 576) + (1_536 + 1_536 + 576)


def test_nano_is_small() -> None:
    model = MViT("nano", 400)
    assert sum(parameter.numel() for parameter in model.parameters()) <= 2_000_000
    assert (model.frames, model.side) == (8, 96) and model.grid == (4, 24, 24)


def test_a_full_set_of_tokens_is_exactly_the_ordinary_network(small: MViT) -> None:
    x = clips()
    everything = torch.ones(3, *small.grid, dtype=torch.bool)
    assert torch.equal(small(x, everything), small(x))


def test_beside_a_clip_in_part_a_whole_one_is_what_it_is_alone(small: MViT) -> None:
    x, tokens = clips(), some_tokens()
    tokens[1] = True
    torch.testing.assert_close(small(x, tokens)[1], small(x[1:2])[0], rtol=0, atol=1e-12)


def weights_above(model: MViT) -> list[nn.Parameter]:
    """All but those that tokens are made with."""
    return [parameter for name, parameter in model.named_parameters() if not name.startswith(("conv_proj", "pos_encoding"))]


def with_other_absent_tokens(x: Tensor, tokens: Tensor) -> Tensor:
    other, absent = x.clone(), ~tokens.flatten(1)
    other[:, 1:][absent] = 1e3 * torch.randn(int(absent.sum()), x.shape[-1], dtype=x.dtype, generator=torch.Generator().manual_seed(5))
    return other


def test_absent_tokens_have_no_part_in_anything(small: MViT, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever lies where tokens are absent: neither what is said nor any gradient changes by one bit."""
    tokens, embedded = some_tokens(), small.embed(clips()).detach()
    found = []
    for given in (embedded, with_other_absent_tokens(embedded, tokens)):
        monkeypatch.setattr(small, "embed", lambda _, given=given: given)
        said = small(clips(), tokens)
        found.append((said, *torch.autograd.grad(said.square().sum(), weights_above(small))))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("number", range(8))
def test_no_block_reads_absent_tokens(small: MViT, number: int) -> None:
    """Even where they are not nothing: each block leaves them out by itself."""
    block = small.blocks[number]
    assert isinstance(block, Block)
    tokens = torch.rand(3, *block.grid, generator=torch.Generator().manual_seed(number)) < 0.2
    tokens[0, 0], tokens[0, 1], tokens[2] = False, True, False
    x = torch.randn(3, 1 + block.grid.total, len(block.norm1.weight), generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    found = []
    for given in (x, with_other_absent_tokens(x, tokens)):
        out, _ = block(given, tokens)
        found.append([out, *torch.autograd.grad(out.square().sum(), list(block.parameters()))])
        if block.stride == (1, 1, 1):
            found[-1].append(block.of_class(given, tokens))
            torch.testing.assert_close(found[-1][-1], out[:, 0], rtol=0, atol=1e-12)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_key_is_there_if_anything_that_its_window_reads_is(small: MViT, number: int) -> None:
    """A single token beside the middle of the first window: the class token sees it by that key, and by no other."""
    block = small.blocks[number]
    assert isinstance(block, Block) and block.attn.pool_k.stride[1] > 1
    tokens = torch.zeros(1, *block.grid, dtype=torch.bool)
    tokens[0, 0, 1, 1] = True
    x = torch.randn(1, 1 + block.grid.total, len(block.norm1.weight), generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    other = x.clone()
    other[0, 1 + block.grid.columns + 1] += 1
    assert not torch.equal(block(x, tokens)[0][:, 0], block(other, tokens)[0][:, 0])


def test_absent_is_not_zero(small: MViT, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token of zeros is touched by the biases of the network, and looked at; one that is absent is neither."""
    x, tokens = clips(), some_tokens()
    said = small(x, tokens)
    assert not torch.allclose(said, small(x))
    zeroed = small.embed(x) * with_class(tokens)
    monkeypatch.setattr(small, "embed", lambda _: zeroed)
    assert not torch.allclose(said, small(x)) and torch.equal(said, small(x, tokens))


def test_a_clip_without_any_token_is_the_class_token_alone(small: MViT) -> None:
    """By hand: it has none but itself to attend to, so that each block is a few linear maps of it."""
    said = small(clips(), torch.zeros(3, *small.grid, dtype=torch.bool))
    x = small.pos_encoding.class_token
    for block in small.blocks:
        assert isinstance(block, Block)
        normed, attention = block.norm1(x), block.attn
        values = attention.pool_v.norm_act(attention.qkv(normed).chunk(3)[2].view(attention.heads, attention.width))
        x = (x if block.project is None else block.project(normed)) + attention.project(values.flatten())
        x = x + block.mlp(block.norm2(x))
    torch.testing.assert_close(said, small.head(small.norm(x)).expand(3, -1), rtol=0, atol=1e-12)


def test_tokens_of_one_clip_do_not_touch_another(small: MViT) -> None:
    """Of the others few are there: where the first is whole, it must not lend them any."""
    x, tokens = clips(), some_tokens()
    tokens[0], tokens[1:, :, 2:] = True, False
    others = tokens.clone()
    others[0] = False
    torch.testing.assert_close(small(x, tokens)[1:], small(x, others)[1:], rtol=0, atol=1e-12)


def test_what_was_computed_before_goes_on_as_if_at_once(small: MViT) -> None:
    x, tokens = clips(), some_tokens()
    features = small.lower(x, tokens)
    assert set(features[..., -1].unique().tolist()) == {0.0, 1.0}
    y, present = small.embed(x) * with_class(tokens), tokens
    for block in small.blocks:
        y, present = block(y, present)
    assert torch.equal(small.upper(features), small.head(small.norm(y[:, 0])))


def test_the_last_block_of_the_class_token_alone_is_the_last_block(small: MViT) -> None:
    features = small.lower(clips(), some_tokens())
    whole = small.vector(features)
    for parameter in small.parameters():
        parameter.requires_grad = False
    torch.testing.assert_close(small.vector(features), whole, rtol=0, atol=1e-12)
    for parameter in small.parameters():
        parameter.requires_grad = True


def test_a_pooled_token_is_present_if_any_of_its_inputs_is() -> None:
    present = torch.zeros(1, 2, 8, 8, dtype=torch.bool)
    present[0, 0, 3, 3] = True
    pooled = pooled_presence(present, (1, 3, 3), (1, 2, 2))
    assert pooled.shape == (1, 2, 4, 4)
    assert pooled[0].nonzero().tolist() == [[0, 1, 1], [0, 1, 2], [0, 2, 1], [0, 2, 2]]


def test_nothing_comes_out_of_absent_tokens_of_a_block(small: MViT) -> None:
    tokens = some_tokens()
    x = small.embed(clips()) * torch.cat([torch.ones(3, 1, 1), tokens.flatten(1)[..., None]], 1)
    for block in small.blocks:
        assert isinstance(block, Block)
        x, after = block(x, tokens)
        assert after is not None and bool((x[:, 1:][~after.flatten(1)] == 0).all())
        tokens = after


@pytest.mark.parametrize("strategy", ["full", "finetune"])
def test_clipped_sums_are_exact_with_some_tokens(small: MViT, strategy: str) -> None:
    chosen = {id(parameter) for parameter in (small.parameters() if strategy == "full" else last_normalisations(small))}
    for parameter in small.parameters():
        parameter.requires_grad = id(parameter) in chosen
    tokens = some_tokens(4)
    tokens[3] = True
    batch = {"x": clips(4), "tokens": tokens, "label": torch.tensor([0, 1, 2, 3])}

    def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch["x"], batch["tokens"]), batch["label"], reduction="none")

    engine = ClippingEngine(small)
    clipped = engine.clipped_sum(loss, batch, 0.5)
    assert engine.path == "fast"
    expected = {name: torch.zeros_like(parameter) for name, parameter in small.named_parameters() if parameter.requires_grad}
    for row in range(4):
        one = {name: value[row : row + 1] for name, value in batch.items()}
        gradients = torch.autograd.grad(loss(small, one).sum(), [p for p in small.parameters() if p.requires_grad])
        norm = float(torch.sqrt(sum(g.square().sum() for g in gradients)))  # type: ignore[arg-type]
        for name, gradient in zip(expected, gradients, strict=True):
            expected[name] += min(1.0, 0.5 / norm) * gradient
    for name, value in expected.items():
        # What is added to all keys alike changes no attention: the bias of pooled keys has no gradient but rounding.
        scale = 1.0 if name.endswith("pool_k.norm_act.0.bias") else float(value.abs().max())
        assert float((clipped.sums[name] - value).abs().max()) <= 1e-9 * scale, name
    for parameter in small.parameters():
        parameter.requires_grad = True


def test_a_clip_of_another_size_is_refused(small: MViT) -> None:
    with pytest.raises(HalfmaskError, match="expected N×3×4×32×32"):
        small(torch.zeros(1, 3, 8, 32, 32, dtype=torch.float64))
    with pytest.raises(HalfmaskError, match="nano"):
        MViT("nanoo")


def test_tables_are_stretched_to_clips_of_another_size() -> None:
    """The relative positions of a checkpoint serve clips of other sizes."""
    whole, half = MViT("nano", 2), MViT("nano", 2, frames=4, side=64)
    half.load_state_dict(whole.state_dict())
    assert half.grid == Grid(2, 16, 16)
    # Stretched linearly, a table that rises steadily goes on rising from one end to the other.
    distance = half.blocks[0].attn.distances[1]
    table = torch.linspace(-1, 1, len(whole.blocks[0].attn.rel_pos_h))[:, None]
    seen = distance.rows(table)
    assert seen.shape[:2] == (16, 2) and float(seen.min()) < -0.4 and float(seen.max()) > 0.4
    assert torch.equal(seen[..., 0].argsort(0), torch.arange(16)[:, None].expand(16, 2))


def test_the_patch_is_what_views_are_told() -> None:
    model = MViT("nano", 2)
    assert (model.conv_proj.kernel_size, model.conv_proj.stride) == (PATCH, PATCH_STRIDE) == (Tokens().patch, Tokens().stride)
    assert SHAPES.keys() == {"nano", "s"}


def test_the_embedded_start_is_small_and_knows_no_class() -> None:
    path = Path(str(resources.files("halfmask").joinpath("weights/action_nano.safetensors")))
    assert path.stat().st_size <= 5_000_000
    state, wanted = read_state(path), MViT("nano", 16).state_dict()
    assert state.keys() == {name for name in wanted if not name.startswith("head.")}
    assert all(state[name].shape == wanted[name].shape and torch.isfinite(state[name].float()).all() for name in state)
