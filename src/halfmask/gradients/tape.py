"""One forward and one backward pass, watched: what went into each trainable layer and what came back to it.

The backward pass computes no weight gradient. As it reaches a watched layer, that layer's rule turns what is known there into a term;
where the term needs neither input nor output gradient any more, they are let go at once, so that memory stays near that of ordinary
training. The pass stops at the lowest trainable layer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from halfmask.errors import HalfmaskError
from halfmask.gradients.derived import Derived, lookup_term, roots
from halfmask.gradients.picking import Picking, graph_of
from halfmask.gradients.piecemeal import Unsplittable, function_terms, module_terms
from halfmask.gradients.pieces import Batch, change_leaves, count_records, leaves_of
from halfmask.gradients.rules import forward_for, function_rule_for, rule_for
from halfmask.gradients.terms import Direct, Grouping, Term
from halfmask.gradients.uses import UnknownUse, Uses
from halfmask.gradients.watching import Call, Layer, PicksRecords, UnknownLayer, Visit, rewritten, visiting, watching

_MANY_BUILDS = 16


class Tape:
    """Turns a per-record loss into per-record gradient terms for a model's trainable parameters.

    Attributes:
        slow: what is differentiated one record at a time, and the seconds that took in the last pass.
    """

    def __init__(self, model: nn.Module):
        self._model = model
        self._layers: list[Layer] = []
        self._written_out: list[tuple[nn.Module, Callable[..., Any]]] = []
        self._owners: dict[str, tuple[str, nn.Module]] = {}
        # A parameter that two modules share is one parameter: terms add up under its first name.
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._trainable = [p for p in model.parameters() if p.requires_grad]
        self._tracing = self._strangers_are_free = False
        for name, module in model.named_modules():
            forward = forward_for(module)
            if forward is not None and "forward" not in vars(module) and any(p.requires_grad for p in module.parameters()):
                self._written_out.append((module, forward))
                self._tracing = True
            own = {key: p for key, p in module.named_parameters(recurse=False) if p.requires_grad}
            if not own:
                continue
            self._owners |= {self._names[id(p)]: (name, module) for p in own.values() if self._names[id(p)] not in self._owners}
            rule = rule_for(module)
            speaks = hasattr(module, "record_gradients")
            if rule is None or (not speaks and own.keys() - {"weight", "bias"}):
                self._tracing = True
            else:
                watched = module.get_submodule(getattr(module, "tap", "")) if speaks else module
                names = tuple(self._names[id(p)] for p in own.values())
                self._layers.append(Layer(name, module, watched, rule, names))
        # Layers that have the records in their second dimension.
        self._crosswise: set[str] = set()
        # Parameters whose module is differentiated by itself, by the name of that module.
        self._by_module: dict[str, set[str]] = {}
        self.slow: dict[str, float] = {}
        # Whether every output must be asked for by name, because some lie on no path to the lowest layers.
        self._ask_for_all = False
        # What passes were built of that were watched and picked nobody; None once one may with other records, so that all are watched.
        self._harmless: set[Hashable] | None = set()
        self._passes = 0

    @property
    def traces(self) -> bool:
        """Whether torch functions are watched too, not only layers."""
        return self._tracing

    def retreat(self, trouble: UnknownLayer) -> bool:
        """Go about those parameters in a way that assumes less; False if there is none left."""
        if not self._tracing:
            self._tracing = True
            return True
        if not self._strangers_are_free:
            self._strangers_are_free = True
            return True
        turned = {layer.name for layer in self._layers if trouble.parameters & set(layer.names)} - self._crosswise
        if turned:
            self._crosswise |= turned
            return True
        fresh = False
        for name in trouble.parameters:
            known = self._by_module.setdefault(self._owners[name][0], set())
            fresh |= name not in known
            known.add(name)
        self._layers = [layer for layer in self._layers if layer.name not in self._by_module]
        return fresh

    def terms(self, losses: Callable[[], Tensor], batch: Batch, grouping: Grouping | None = None) -> dict[str, Term]:
        """Per-record (per-unit, with a grouping) gradient terms by parameter name. `losses()` returns one loss per record of the batch."""
        self._passes += 1
        # In passes 1, 2, 4, 8, … too: what is done to records before they meet a parameter shows in no gradient.
        watched = self._harmless is None or not self._passes & (self._passes - 1)
        return self._terms(losses, batch, grouping, watched and count_records(batch) > 1)

    def _terms(self, losses: Callable[[], Tensor], batch: Batch, grouping: Grouping | None, watched: bool) -> dict[str, Term]:
        records = count_records(batch)
        terms: dict[str, Term] = {}
        derived = Derived(list(self._trainable))
        self.slow = dict.fromkeys(self.slow, 0.0)

        def add(source: Tensor, term: Term) -> None:
            name = self._names.get(id(source))
            with exact_products(source.device):
                whole = term if grouping is None else term.by_unit(grouping)
                if name is None:
                    derived.add(source, whole)
                else:
                    terms[name] = (terms[name].joined(whole) if name in terms else whole).settled()

        calls: list[Call] = []
        visits: list[Visit] = []
        edges: list[GradientEdge] = []
        uses = self._uses(calls, add, batch, records) if self._tracing else None
        try:
            with ExitStack() as stack:
                stack.enter_context(watching(self._layers, calls, partial(self._arrive, add, records), uses))
                stack.enter_context(rewritten(self._written_out))
                if uses is not None:
                    stack.enter_context(visiting(self._visited(), visits, edges, uses))
                    stack.enter_context(uses)
                picking = stack.enter_context(Picking(self._model, batch, records)) if watched else None
                loss = losses()
            built, leaves = graph_of(loss)
            if records > 1 and not self._picks_nobody(built, picking):
                return self._terms(losses, batch, grouping, watched=True)
            lowest = [call.output for call in calls if call.lowest]
            wanted: list[Any] = [call.output for call in calls] if self._ask_for_all or not lowest else lowest
            copies = [] if uses is None else uses.copies
            gradients = torch.autograd.grad(loss.sum(), [*(copy.rows for copy in copies), *edges, *wanted], allow_unused=True)
        except UnknownUse as use:
            raise self._unknown(str(use), use.tensors) from None
        finally:
            for call in calls:
                call.forget()
        if uses is not None:
            self._add_copies(uses, gradients, add, records)
        for visit in visits:
            self._add_visit(visit, add, records)
        for parameter, term in derived.terms():
            name = self._names[id(parameter)]
            with exact_products(parameter.device):
                terms[name] = (terms[name].joined(term) if name in terms else term).settled()
        if not self._ask_for_all and not all(call.reached for call in calls):
            self._ask_for_all = True
            return self._terms(losses, batch, grouping, watched)
        unseen = sorted({self._names[leaf] for leaf in leaves if leaf in self._names} - terms.keys())
        if unseen:
            raise UnknownLayer(f"the way this model uses {', '.join(unseen)} (the loss depends on them, and nobody saw how)", unseen)
        return terms

    def _picks_nobody(self, built: Hashable, picking: Picking | None) -> bool:
        """Whether that is known of a pass; refused if it is known that it does."""
        if picking is None:
            return self._harmless is not None and built in self._harmless
        if picking.seen:
            raise PicksRecords(f"a network that picks records by a tensor ({picking.seen})")
        if self._harmless is not None:
            self._harmless.add(built)
            # One that is built anew in every pass is watched in every pass: to find that out each time costs more.
            if picking.may or len(self._harmless) > _MANY_BUILDS:
                self._harmless = None
        return True

    def _uses(self, calls: list[Call], add: Callable[[Tensor, Term], None], batch: Batch, records: int) -> Uses:
        met = partial(self._met, calls, add, records)
        return Uses(self._model, self._trainable, batch, records, met, self._strangers_are_free)

    def _add_copies(self, uses: Uses, gradients: tuple[Any, ...], add: Callable[[Tensor, Term], None], records: int) -> None:
        for copy, gradient in zip(uses.copies, gradients, strict=False):
            if gradient is None:
                continue
            lookup = uses.lookups.get(id(copy.source))
            with exact_products(gradient.device):
                if lookup is None:
                    source, term = copy.source, cast(Term, Direct(copy.of_records(gradient, records)))
                else:
                    each = gradient if copy.own else copy.of_records(gradient, records)
                    source, term = lookup.table, lookup_term(lookup, each, records, copy.own)
            add(source, term)

    def _add_visit(self, visit: Visit, add: Callable[[Tensor, Term], None], records: int) -> None:
        args, kwargs = visit.inputs
        try:
            with self._timed(f"{visit.name or 'the model itself'} ({type(visit.module).__name__})"):
                found = module_terms(visit.module, args, kwargs, lambda t: id(t) in visit.bound, visit.parameters, visit.gradients, records)
        except Unsplittable as reason:
            raise self._unknown(f"{visit.name} ({reason})", visit.parameters) from None
        for parameter, term in found:
            add(parameter, term)

    def _unknown(self, reason: str, tensors: Iterable[Tensor]) -> UnknownLayer:
        names = {self._names[root] for tensor in tensors for root in roots(tensor) if root in self._names}
        return UnknownLayer(f"{', '.join(sorted(names))}: {reason}", names)

    @contextmanager
    def _timed(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.slow[what] = self.slow.get(what, 0.0) + time.perf_counter() - start

    def _met(
        self,
        calls: list[Call],
        add: Callable[[Tensor, Term], None],
        records: int,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bound: list[Tensor],
        watched: list[Tensor],
        output: Any,
    ) -> None:
        """A function was given both records and parameters."""
        if not any(tensor.requires_grad for tensor in leaves_of(output)):
            return
        if not isinstance(output, Tensor):
            raise UnknownUse(f"{func.__name__} returns more than one tensor", watched)
        rule = function_rule_for(func, args, kwargs, watched)
        by_id = {id(t): t for t in watched}
        precision = watched[0].dtype
        saved = change_leaves(lambda x: x.detach() if isinstance(x, Tensor) and id(x) not in by_id else x, (args, kwargs))
        versions = [tensor._version for tensor in leaves_of(saved)]

        def work(gradient: Tensor) -> None:
            if versions != [tensor._version for tensor in leaves_of(saved)]:
                raise HalfmaskError(f"an input of {func.__name__} was changed in place after it was used: write to a new tensor instead")
            if rule is not None and not len(gradient) % records:
                try:
                    with exact_products(gradient.device):
                        args, kwargs = change_leaves(partial(_as_precise, precision), saved)
                        found = rule(args, kwargs, gradient.to(precision), records)
                except NotImplementedError:  # the rule does not go as far as these arguments
                    pass
                else:
                    for source, term in found:
                        add(by_id[source], term)
                    return
            names = sorted({self._names[root] for t in watched for root in roots(t) if root in self._names})
            try:
                with self._timed(f"{func.__name__} of {', '.join(names)}"):
                    slow = function_terms(func, saved[0], saved[1], watched, gradient, records)
            except Unsplittable as reason:
                raise self._unknown(f"{func.__name__} ({reason})", watched) from None
            for tensor, term in slow:
                add(tensor, term)

        call = Call(work, get_gradient_edge(output), not any(tensor.requires_grad for tensor in bound))
        calls.append(call)
        call.hook = output.register_hook(call.arrive)

    def _visited(self) -> list[tuple[str, nn.Module, list[nn.Parameter]]]:
        return [
            (name, self._model.get_submodule(name), [p for p in self._trainable if self._names[id(p)] in own])
            for name, own in self._by_module.items()
        ]

    def _arrive(self, add: Callable[[Tensor, Term], None], records: int, layer: Layer, inputs: Tensor, gradient: Tensor) -> None:
        if layer.name in self._crosswise and inputs.dim() > 2 and gradient.dim() > 2:
            inputs, gradient = inputs.transpose(0, 1), gradient.transpose(0, 1)
        own = dict(layer.module.named_parameters(recurse=False))
        if len(inputs) % records:
            raise UnknownLayer(f"{layer.name} (its leading dimension {len(inputs)} is no multiple of {records} records)", layer.names)
        precision = next(iter(own.values())).dtype
        try:
            with exact_products(gradient.device):
                terms = layer.rule(layer.module, _as_precise(precision, inputs), gradient.to(precision), records)
        except NotImplementedError as reason:
            raise UnknownLayer(f"{layer.name} ({reason})", layer.names) from None
        for key, term in terms.items():
            if own[key].requires_grad:
                add(own[key], term)


def _as_precise(precision: torch.dtype, value: Any) -> Any:
    return value.to(precision) if isinstance(value, Tensor) and value.is_floating_point() else value


def exact_products(device: torch.device) -> AbstractContextManager[None]:
    """No graph, and no autocast: products in a shorter format would let a norm and the sum it bounds disagree."""
    shortens = device.type != "meta" and torch.is_autocast_enabled(device.type)
    if not (torch.is_grad_enabled() or shortens or device.type == "cuda"):
        return nullcontext()  # as it is anyway in a backward pass: to say so again for each layer would cost more than small layers do
    return _exact_products(device, shortens)


@contextmanager
def _exact_products(device: torch.device, shortens: bool) -> Iterator[None]:
    with (
        torch.no_grad(),
        torch.autocast(device.type, enabled=False) if shortens else nullcontext(),
        _no_tensor_float() if device.type == "cuda" else nullcontext(),
    ):
        yield


@contextmanager
def _no_tensor_float() -> Iterator[None]:
    """GPUs may round the factors of a single-precision product to 10 bits, and convolutions do so by default."""
    matmul, convolution = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, convolution.allow_tf32
    matmul.allow_tf32 = convolution.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, convolution.allow_tf32 = before
