"""Recurrent layers, written out step by step: torch's own run all steps in one function.

A step is a linear map of what comes in and one of what is remembered, so that the rule of linear maps applies. Python runs every step by
itself, which costs more than torch's own layer does; no record is differentiated by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from halfmask.gradients.rules import written_out

# What came in and what is remembered, each after its linear map, and the states before: to the states after, the first of which is shown.
Cell = Callable[[Tensor, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]


def _lstm(fed: Tensor, kept: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    enter, forget, new, show = (fed + kept).chunk(4, 1)
    memory = torch.sigmoid(forget) * states[1] + torch.sigmoid(enter) * torch.tanh(new)
    return torch.sigmoid(show) * torch.tanh(memory), memory


def _gru(fed: Tensor, kept: Tensor, states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (reset, hold, new), (kept_reset, kept_hold, kept_new) = fed.chunk(3, 1), kept.chunk(3, 1)
    proposed = torch.tanh(new + torch.sigmoid(reset + kept_reset) * kept_new)
    held = torch.sigmoid(hold + kept_hold)
    return ((1 - held) * proposed + held * states[0],)


def _rnn(activation: Callable[[Tensor], Tensor]) -> Cell:
    return lambda fed, kept, states: (activation(fed + kept),)


@written_out(nn.RNN, nn.LSTM, nn.GRU)
def recurrent(module: nn.RNNBase, input: Any, hx: Any = None) -> tuple[Tensor, Any]:
    """What the layer computes; packed sequences are left to torch's own."""
    if not isinstance(input, Tensor) or input.dim() != 3:
        return type(module).forward(module, input, hx)
    x = input if module.batch_first else input.transpose(0, 1)
    if isinstance(module, nn.LSTM):
        cell: Cell = _lstm
    else:
        cell = _gru if isinstance(module, nn.GRU) else _rnn(torch.tanh if module.nonlinearity == "tanh" else torch.relu)
    given = _first_states(module, x, hx)
    ways = 2 if module.bidirectional else 1
    last: list[tuple[Tensor, ...]] = []
    for layer in range(module.num_layers):
        sides = []
        for way in range(ways):
            states = tuple(state[layer * ways + way] for state in given)
            shown, states = _one_way(module, cell, x, states, f"_l{layer}" + ("_reverse" if way else ""), bool(way))
            sides.append(shown)
            last.append(states)
        x = torch.cat(sides, 2) if ways == 2 else sides[0]
        if module.dropout and layer + 1 < module.num_layers:
            x = F.dropout(x, module.dropout, module.training)
    after = tuple(torch.stack(states) for states in zip(*last, strict=True))
    return x if module.batch_first else x.transpose(0, 1), after if isinstance(module, nn.LSTM) else after[0]


def _first_states(module: nn.RNNBase, x: Tensor, hx: Any) -> tuple[Tensor, ...]:
    """The states of every layer and way before the first step."""
    if hx is not None:
        return tuple(hx) if isinstance(hx, tuple) else (hx,)
    count = module.num_layers * (2 if module.bidirectional else 1)
    widths = (module.proj_size or module.hidden_size, *((module.hidden_size,) if isinstance(module, nn.LSTM) else ()))
    return tuple(x.new_zeros(count, len(x), width) for width in widths)


def _one_way(
    module: nn.RNNBase, cell: Cell, x: Tensor, states: tuple[Tensor, ...], suffix: str, backwards: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One layer in one direction."""

    def weight(name: str) -> Tensor | None:
        return getattr(module, name + suffix, None)

    in_weight, keep_weight, project = weight("weight_ih"), weight("weight_hh"), weight("weight_hr")
    assert in_weight is not None and keep_weight is not None
    fed = F.linear(x, in_weight, weight("bias_ih"))
    steps = range(x.shape[1] - 1, -1, -1) if backwards else range(x.shape[1])
    shown: list[Tensor] = []
    for step in steps:
        states = cell(fed[:, step], F.linear(states[0], keep_weight, weight("bias_hh")), states)
        if module.proj_size and project is not None:
            states = (F.linear(states[0], project), *states[1:])
        shown.append(states[0])
    return torch.stack(shown[::-1] if backwards else shown, 1), states
