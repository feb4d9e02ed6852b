"""Gradients on their way back from what was computed of parameters alone to the parameters themselves."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from halfmask.gradients.rules.embedding import Rows
from halfmask.gradients.terms import Direct, Term
from halfmask.gradients.uses import Lookup


class Derived:
    """Terms of tensors that are no parameters: a table of positions after it was indexed, a weight after it was normalised."""

    def __init__(self, parameters: list[Tensor]):
        self._parameters = parameters
        self._held: dict[int, tuple[Tensor, Term]] = {}

    def add(self, source: Tensor, term: Term) -> None:
        """Of each unit."""
        known = self._held.get(id(source))
        self._held[id(source)] = (source, term if known is None else known[1].joined(term))

    def terms(self) -> Iterator[tuple[Tensor, Term]]:
        """The parameters that they were computed from, and the term of each: all units go back along the one graph they share."""
        if not self._held:
            return
        sources = [source for source, _ in self._held.values()]
        gradients = [term.direct().gradients.to(source.dtype) for source, term in self._held.values()]
        for parameter, gradient in zip(self._parameters, self._back(sources, gradients), strict=True):
            if gradient is not None:
                yield parameter, Direct(gradient)

    def _back(self, sources: list[Tensor], gradients: list[Tensor]) -> list[Tensor | None]:
        try:
            return list(
                torch.autograd.grad(sources, self._parameters, gradients, retain_graph=True, is_grads_batched=True, allow_unused=True)
            )
        except (RuntimeError, NotImplementedError):  # not everything can be differentiated for several at once
            rows = [
                torch.autograd.grad(sources, self._parameters, [g[i] for g in gradients], retain_graph=True, allow_unused=True)
                for i in range(len(gradients[0]))
            ]
        return [None if each[0] is None else torch.stack(each) for each in zip(*rows, strict=True)]


def lookup_term(lookup: Lookup, gradient: Tensor, records: int, own_rows: bool) -> Term:
    """The term of a table of which rows were looked up that are the same for all records (or, with `own_rows`, a row for each)."""
    width = lookup.table.shape[1]
    indices = lookup.indices.reshape(records, -1) if own_rows else lookup.indices.reshape(1, -1).expand(records, -1)
    each = gradient.reshape(records, -1, width)
    if lookup.padding is not None:
        each = each.masked_fill((indices == lookup.padding)[..., None], 0)
    return Rows(indices, each, lookup.table.shape)


def roots(tensor: Tensor) -> set[int]:
    """The ids of the parameters that a tensor was computed from."""
    if tensor.grad_fn is None:
        return {id(tensor)}
    found: set[int] = set()
    seen, waiting = set(), [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        waiting += [below for below, _ in node.next_functions if below is not None]
    return found
