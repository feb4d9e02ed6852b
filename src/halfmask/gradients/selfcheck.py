"""The engine's doubt of itself: do the rules give what differentiating each record's loss alone gives?

A rule sees a layer's input and output, not what a model does around it: a weight used behind its layer's back, or a class token indexed
as if it had one row, would give one person's gradient to another, and no clip would hold.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from halfmask.gradients.pieces import Batch, LossFn, count_records, losses_of, some_records
from halfmask.gradients.tape import Tape, UnknownLayer
from halfmask.gradients.terms import Grouping, Term, as_rows

# For gross errors: exactness has tests of its own.
_RECORDS, _TOLERANCE = 3, 1e-2


class SelfCheck:
    """Compares the two on a few records of the first batches.

    A parameter is done with once it had a gradient to compare; until then it is looked at whenever it is about to have a part in a sum.
    """

    def __init__(self, model: nn.Module, parameters: dict[str, nn.Parameter]):
        self.model, self.parameters = model, parameters
        self._unverified = set(parameters)
        self._looked = False

    def again(self) -> None:
        """The tape goes about it in another way: look at all of it once more."""
        self._unverified, self._looked = set(self.parameters), False

    def run(self, tape: Tape, loss_fn: LossFn, batch: Batch, found: dict[str, Term], grouping: Grouping | None = None) -> None:
        """Raise `UnknownLayer` if the tape is wrong about this model.

        Args:
            found: the terms of the whole batch, which nobody has used yet.
        """
        parameters = list(self.parameters.values())
        if not self._unverified or count_records(batch) < 2 or parameters[0].device.type == "meta":
            return
        squares = [found[name].squared_norms() for name in sorted(self._unverified & found.keys())]
        present = torch.stack(squares).sum(0) if squares else torch.zeros(1)
        if self._looked and not bool((present != 0).any()):
            return
        few = some_records(batch, slice(_RECORDS))
        if self._looked:
            # Those who have a part in what is not yet known to be right.
            of_records = present.cpu() if grouping is None else present.cpu()[grouping.unit.cpu()]
            few = some_records(batch, of_records.nan_to_num(posinf=0).topk(min(_RECORDS, len(of_records))).indices.sort().values)
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
        # Some gradients are zero but for rounding, such as that of the bias of attention keys: they are seen beside the whole.
        wrong = []
        whole = torch.stack([torch.stack([g.double().square().sum() for g in row]).sum().sqrt() for row in apart])
        for name, alone in zip(self.parameters, zip(*apart, strict=True), strict=True):
            expected = as_rows(torch.stack(alone).double())
            found = as_rows(terms[name].direct().gradients.double()) if name in terms else torch.zeros_like(expected)
            lengths = expected.norm(dim=1)
            gaps = (found - expected).norm(dim=1)
            sound = torch.isfinite(lengths) & torch.isfinite(whole)
            if bool((sound & ~(gaps <= _TOLERANCE * lengths + 1e-4 * whole + 1e-12)).any()):
                wrong.append(name)
            if int((sound & (lengths > 0) & (gaps <= _TOLERANCE * lengths)).sum()) >= 2:
                self._unverified.discard(name)
        if wrong:
            raise UnknownLayer(f"the way this model uses {', '.join(wrong)} (gradients by layer and by loss do not add up)", wrong)


def _cuda_devices(tensors: list[nn.Parameter]) -> list[torch.device]:
    return sorted({t.device for t in tensors if t.device.type == "cuda"}, key=str)
