"""Normalisations within one record, or by statistics that are fixed: scale and shift of what was normalised."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.rules import function_rule, rule
from halfmask.gradients.terms import Direct, Term

# Numbers to normalise at once: few enough to stay in the processor's cache until they are added up.
_AT_ONCE = 1 << 18


@rule(nn.LayerNorm)
def layer_norm(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Over the last dimensions."""
    assert isinstance(module, nn.LayerNorm)
    shape = module.normalized_shape
    terms: dict[str, Term] = {}
    if module.weight is not None and module.weight.requires_grad:
        terms["weight"] = _last_scaled(lambda x: F.layer_norm(x, shape, None, None, module.eps), inputs, output_gradient, shape, records)
    if module.bias is not None and module.bias.requires_grad:
        terms["bias"] = _last(output_gradient, shape, records)
    return terms


@rule(nn.RMSNorm)
def rms_norm(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """By the root of the mean square over the last dimensions."""
    assert isinstance(module, nn.RMSNorm)
    return rms_norm_function(output_gradient, records, inputs, module.normalized_shape, module.weight, module.eps)


@rule(nn.GroupNorm)
def group_norm(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Over groups of channels of each record."""
    assert isinstance(module, nn.GroupNorm)
    terms: dict[str, Term] = {}
    if module.weight is not None and module.weight.requires_grad:
        groups, eps = module.num_groups, module.eps
        terms["weight"] = _channels_scaled(lambda x: F.group_norm(x, groups, None, None, eps), inputs, output_gradient, records)
    if module.bias is not None and module.bias.requires_grad:
        terms["bias"] = _channels(output_gradient, records)
    return terms


@rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def instance_norm(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """Over the pixels of each channel (or by fixed statistics, if it was made to keep some)."""
    assert isinstance(module, nn.modules.instancenorm._InstanceNorm)
    by_own = module.training or not module.track_running_stats
    return instance_norm_function(
        output_gradient, records, inputs, module.running_mean, module.running_var, module.weight, module.bias, by_own, 0.0, module.eps
    )


@rule(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
def frozen_batch_norm(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """By fixed statistics alone: one that learns them is refused before it gets here."""
    assert isinstance(module, nn.modules.batchnorm._BatchNorm)
    return batch_norm_function(
        output_gradient,
        records,
        inputs,
        module.running_mean,
        module.running_var,
        module.weight,
        module.bias,
        module.training,
        0.0,
        module.eps,
    )


@rule(nn.PReLU)
def prelu(module: nn.Module, inputs: Tensor, output_gradient: Tensor, records: int) -> dict[str, Term]:
    """The slope below zero, one for all channels or one for each."""
    assert isinstance(module, nn.PReLU)
    return prelu_function(output_gradient, records, inputs, module.weight)


@function_rule("layer_norm")
def layer_norm_function(
    gradient: Tensor,
    records: int,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> dict[str, Term]:
    """As for a layer."""
    shape = tuple(normalized_shape)
    return {
        "weight": _last_scaled(lambda x: F.layer_norm(x, shape, None, None, eps), input, gradient, shape, records),
        "bias": _last(gradient, shape, records),
    }


@function_rule("rms_norm", weights=("weight",))
def rms_norm_function(
    gradient: Tensor,
    records: int,
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> dict[str, Term]:
    """As for a layer."""
    shape = tuple(normalized_shape)
    return {"weight": _last_scaled(lambda x: F.rms_norm(x, shape, None, eps), input, gradient, shape, records)}


@function_rule("group_norm")
def group_norm_function(
    gradient: Tensor,
    records: int,
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> dict[str, Term]:
    """As for a layer."""
    scaled = _channels_scaled(lambda x: F.group_norm(x, num_groups, None, None, eps), input, gradient, records)
    return {"weight": scaled, "bias": _channels(gradient, records)}


@function_rule("instance_norm")
def instance_norm_function(
    gradient: Tensor,
    records: int,
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> dict[str, Term]:
    """As for a layer."""
    means, variances = (None, None) if use_input_stats else (running_mean, running_var)

    def normalise(x: Tensor) -> Tensor:
        return F.instance_norm(x, means, variances, None, None, use_input_stats, 0.0, eps)

    return {"weight": _channels_scaled(normalise, input, gradient, records), "bias": _channels(gradient, records)}


@function_rule("batch_norm")
def batch_norm_function(
    gradient: Tensor,
    records: int,
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> dict[str, Term]:
    """As for a layer whose statistics are fixed."""
    if training or running_mean is None or running_var is None:
        raise NotImplementedError

    def normalise(x: Tensor) -> Tensor:
        return F.batch_norm(x, running_mean, running_var, None, None, False, 0.0, eps)

    return {"weight": _channels_scaled(normalise, input, gradient, records), "bias": _channels(gradient, records)}


@function_rule("prelu", weights=("weight",))
def prelu_function(gradient: Tensor, records: int, input: Tensor, weight: Tensor) -> dict[str, Term]:
    """As for a layer."""
    below = torch.where(input < 0, input * gradient, torch.zeros((), dtype=gradient.dtype, device=gradient.device))
    if weight.numel() == 1:
        return {"weight": Direct(below.reshape(records, -1).sum(1).view(records, *weight.shape))}
    return {"weight": _channels(below, records)}


Change = Callable[[Tensor], Tensor]


def _last_scaled(normalise: Change, inputs: Tensor, gradient: Tensor, shape: tuple[int, ...], records: int) -> Direct:
    """What was normalised times the gradient, added up over all but the last dimensions."""
    rows = (x.reshape(records, -1, *shape) for x in (inputs, gradient))
    return Direct(_in_stretches(normalise, lambda x: x.sum(1), *rows))


def _channels_scaled(normalise: Change, inputs: Tensor, gradient: Tensor, records: int) -> Direct:
    """The same, added up over all but the second dimension."""
    each = _in_stretches(normalise, lambda x: x.reshape(*x.shape[:2], -1).sum(2), inputs, gradient)
    return Direct(each.view(records, -1, inputs.shape[1]).sum(1))


def _in_stretches(normalise: Change, add_up: Change, inputs: Tensor, gradient: Tensor) -> Tensor:
    at_once = max(1, _AT_ONCE // max(1, inputs[0].numel())) if inputs.device.type == "cpu" else len(inputs)
    stretches = zip(inputs.split(at_once), gradient.split(at_once), strict=True)
    return torch.cat([add_up(normalise(x).mul_(g)) for x, g in stretches])


def _last(x: Tensor, shape: tuple[int, ...], records: int) -> Direct:
    """Added up over all but the last dimensions."""
    return Direct(x.reshape(records, -1, *shape).sum(1))


def _channels(x: Tensor, records: int) -> Direct:
    """Added up over all but the second dimension."""
    return Direct(x.reshape(*x.shape[:2], -1).sum(2).view(records, -1, x.shape[1]).sum(1))
