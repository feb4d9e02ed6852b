"""The engine's doubt of itself: do the rules give what differentiating each record's loss alone gives?

A rule sees a layer's input and output, not what a model does around it: a weight used behind its layer's back, or a class token indexed
as if it had one row, would give one person's gradient to another, and no clip would hold.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from halfmask.gradients.pieces import Batch, LossFn, count_records, losses_of, some_records
from halfmask.gradients.rules.convolved import Turned
from halfmask.gradients.tape import Tape, UnknownLayer
from halfmask.gradients.terms import Direct, Grouping, Term, as_rows

# For gross errors: exactness has tests of its own. Some gradients are zero but for rounding, such as that of the bias of attention keys:
# beside the whole, so much of them says nothing.
_RECORDS, _TOLERANCE, _ROUNDING = 3, 1e-2, 1e-4


class SelfCheck:
    """Compares the two on a few records of the first batches.

    A parameter is done with once it had a gradient to compare; until then it is looked at whenever it is about to have a part in a sum, on
    records that have one. Records that are mistaken for each other show only where there are two of them; what a batch of one record
    shows counts for such batches alone.
    """

    def __init__(self, model: nn.Module, parameters: dict[str, nn.Parameter]):
        self.model, self.parameters = model, parameters
        self.again()

    def again(self) -> None:
        """The tape goes about it in another way: look at all of it once more."""
        self._unverified, self._unverified_alone = set(self.parameters), set(self.parameters)
        self._looked = False

    def run(self, tape: Tape, loss_fn: LossFn, batch: Batch, found: dict[str, Term], grouping: Grouping | None = None) -> None:
        """Raise `UnknownLayer` if the tape is wrong about this model.

        Args:
            found: the terms of the whole batch, which nobody has used yet.
        """
        unverified = self._unverified if count_records(batch) > 1 else self._unverified_alone
        if not unverified or next(iter(self.parameters.values())).device.type == "meta":
            return
        # What is known of the whole without computing it.
        beside = _ROUNDING**2 * _squares(term for term in found.values() if isinstance(term, (Direct, Turned)))

        def look_at(names: set[str]) -> None:
            present = _squares(found[name] for name in names)
            if not self._looked or bool((present > beside).any()):
                of_records = present if grouping is None else present[grouping.unit.to(present.device)]
                of_records = of_records.nan_to_num(posinf=0).expand(count_records(batch)).cpu()
                most = of_records.topk(min(_RECORDS, len(of_records))).indices.sort().values
                self._look(tape, loss_fn, some_records(batch, most))

        look_at(unverified & found.keys())
        # The records that have most of all may have nothing of one that few records use.
        for name in sorted(unverified & found.keys()):
            if name in unverified:
                look_at({name})

    def _look(self, tape: Tape, loss_fn: LossFn, few: Batch) -> None:
        parameters = list(self.parameters.values())
        self._looked = True

        def losses() -> Tensor:
            torch.manual_seed(0)  # so that dropout, if there is any, draws the same twice
            return losses_of(loss_fn, self.model, few)

        # In full precision: what is looked for are gross errors, and in bfloat16 rounding would pass for one.
        precise = torch.autocast(parameters[0].device.type, enabled=False)
        with precise, torch.random.fork_rng(devices=_cuda_devices(parameters)):
            terms = tape.terms(losses, few)
            apart = [torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True) for loss in losses()]
        with torch.no_grad():
            self._compare(terms, apart)

    def _compare(self, terms: dict[str, Term], apart: list[tuple[Tensor, ...]]) -> None:
        wrong = []
        whole = torch.stack([torch.stack([g.double().square().sum() for g in row]).sum().sqrt() for row in apart])
        for name, alone in zip(self.parameters, zip(*apart, strict=True), strict=True):
            expected = as_rows(torch.stack(alone).double())
            found = as_rows(terms[name].direct().gradients.double()) if name in terms else torch.zeros_like(expected)
            lengths = expected.norm(dim=1)
            gaps = (found - expected).norm(dim=1)
            sound = torch.isfinite(lengths) & torch.isfinite(whole)
            if bool((sound & ~(gaps <= _TOLERANCE * lengths + _ROUNDING * whole + 1e-12)).any()):
                wrong.append(name)
            right = int((sound & (lengths > 0) & (gaps <= _TOLERANCE * lengths)).sum())
            if right >= 2:
                self._unverified.discard(name)
            if right:
                self._unverified_alone.discard(name)
        if wrong:
            raise UnknownLayer(f"the way this model uses {', '.join(wrong)} (gradients by layer and by loss do not add up)", wrong)


def _squares(terms: Iterable[Term]) -> Tensor:
    """The squared length of some terms together, for each record or unit."""
    return sum((term.squared_norms() for term in terms), torch.zeros(1, dtype=torch.float64))


def _cuda_devices(tensors: list[nn.Parameter]) -> list[torch.device]:
    return sorted({t.device for t in tensors if t.device.type == "cuda"}, key=str)
