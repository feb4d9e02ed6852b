"""The processes of a run, started by torchrun: a `Group` over torch.distributed.

Every exchange is watched while it is waited for. A process that died breaks its connection, one that was stopped no longer lets its pulse
be felt, and one that is stuck in a step keeps the others waiting for longer than any step took: each ends the wait with `ProcessLost`.
A process that refuses something (bad data, a full disk) leaves a note for the others before it goes, and all say the same.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import pickle
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.clipped import Clipped
from halfmask.training.distributed import Group, Joining, ProcessLost, elsewhere
from halfmask.training.packing import packed, packed_error, told_elsewhere, unpacked
from halfmask.training.pulse import NOTE, Notes, Pulse, within

T = TypeVar("T")
Kind = TypeVar("Kind", bound=Clipped)
Rows = TypeVar("Rows", Tensor, np.ndarray)

# Numbers of a sum that cross at once: root holds so many of everybody's.
_AT_ONCE = 1 << 20
# Seconds between two looks at an exchange, from the first to the longest, and between two looks at the others.
_SOON, _LATER, _LOOK = 2e-4, 5e-3, 0.5
# A step that takes so many times as long as any before it is taken to be stuck.
_STUCK = 5.0


class Ranks(Group):
    """Several processes, each with a number; number 0 is root."""

    def __init__(self, rank: int, size: int, notes: Notes, pulse: Pulse, joining: Joining):
        self.rank, self.size, self.sharded = rank, size, joining.shard
        self.patience = joining.patience
        self._notes, self._pulse = notes, pulse
        self._heard: dict[int, tuple[bytes, float]] = {}
        self._longest = 0.0
        self._broken = ""

    @classmethod
    def join(cls, joining: Joining) -> Ranks:
        """Meet the others where the launcher says, and make sure that they may talk."""
        where, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        wait = timedelta(seconds=max(joining.patience, 30))
        # torchrun keeps a store of its own, which outlives the processes; without it root's serves.
        hosts = rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        meet = lambda host: dist.TCPStore(where, port, size, is_master=host, timeout=wait, multi_tenant=True)  # noqa: E731
        try:
            # Processes that torchrun starts again meet in another place: notes of those before are not for them.
            place = f"halfmask/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
            store = dist.PrefixStore(place, meet(hosts))
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            if torch.cuda.is_available():
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
            # How long an exchange may take is judged here, by who still answers.
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timedelta(days=7))
            pulse = Pulse(dist.PrefixStore(f"{place}/pulse", meet(False)), rank, joining.patience / 10)
        except RuntimeError as error:
            raise HalfmaskError(
                f"process {rank} of {size} did not find the others at {where}:{port} ({str(error).splitlines()[0]}): start all of them "
                "with torchrun, and let that address be reached from each machine"
            ) from None
        self = cls(rank, size, Notes(store, rank, size), pulse, joining)
        atexit.register(self._leave)
        if rank == 0 and threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            # torchrun ends what is left of a run so: as with Ctrl-C, what was done is written down first.
            signal.signal(signal.SIGTERM, _interrupt)
        with self.together():
            self._introduce(joining)
        return self

    def _introduce(self, joining: Joining) -> None:
        machines = self.everybodys(_machine())
        self.machines = len(set(machines))
        if self.machines > 1 and not all(self.everybodys(joining.encrypted)):
            raise HalfmaskError(
                f"the processes are on {self.machines} machines, and un-noised sums and the key of the coins would cross the network "
                "between them: if it is encrypted and closed to others, say so with --encrypted-network (HALFMASK_ENCRYPTED_NETWORK=1)"
            )

    def share(self, drawn: Rows, owners: np.ndarray | None = None) -> Rows:  # noqa: D102
        if owners is None:
            return drawn[self.rank :: self.size]
        mine = owners[np.asarray(drawn)] == self.rank
        return drawn[torch.from_numpy(mine) if isinstance(drawn, Tensor) else mine]

    def sum(self, clipped: Kind, drawn: Tensor) -> Kind:  # noqa: D102
        # Who has drawn whom is compared on the way: coins that differ, or a unit with two processes, would void the clip.
        said = torch.tensor([_short(drawn), float(len(drawn)), float(len(clipped.norms))], dtype=torch.float64)
        parts = self._at_root(said)
        if parts is not None:
            drew, all_of_them = {tuple(part[:2].tolist()) for part in parts}, sum(int(part[2]) for part in parts)
            if len(drew) != 1 or all_of_them != len(drawn):
                raise HalfmaskError("the processes of the run do not agree on who is in a step: it is not taken, and the run stops")
        tensors = clipped.tensors()
        whole = torch.cat([tensor.reshape(-1) for tensor in tensors])
        for piece in whole.split(_AT_ONCE):
            # In the order of the processes, so that the sum is the same whenever it is taken.
            for part in (self._at_root(piece) or [])[1:]:
                piece.add_(part)
        if self.root:
            for tensor, part in zip(tensors, whole.split([tensor.numel() for tensor in tensors]), strict=True):
                tensor.copy_(part.view_as(tensor))
        return clipped

    def mean(self, gradient: Tensor, loss: float | None, records: int) -> tuple[Tensor, float | None]:  # noqa: D102
        told = torch.tensor([float(records), records * (loss or 0.0), float(loss is not None)], dtype=torch.float64, device=gradient.device)
        total = torch.cat([gradient.double() * records, told])
        self._wait(lambda: dist.all_reduce(total, async_op=True), hurried=True)
        count = max(1.0, float(total[-3]))
        known = float(total[-1]) > 0
        return (total[:-3] / count).to(gradient.dtype), float(total[-2]) / count if known else None

    def from_root(self, make: Callable[[], T], hurried: bool = False) -> T:  # noqa: D102
        if not self.root:
            made, value = self._received(hurried)
            if not made:
                raise told_elsewhere(value)
            return value
        try:
            value = make()
        except HalfmaskError as error:
            self._send(False, packed_error(error), hurried)
            raise
        self._send(True, value, hurried)
        return value

    def at_root(self, make: Callable[[], T], what: str) -> T:  # noqa: D102
        return make() if self.root else elsewhere(what)

    def spread(self, model: nn.Module) -> None:  # noqa: D102
        with torch.no_grad():
            for tensor in model.state_dict().values():
                # Weights may lie in memory in an order of their own.
                tensor.copy_(self._broadcast(tensor.contiguous(), hurried=False))

    def agree(self, what: str, found: Callable[[], bytes]) -> None:  # noqa: D102
        answers = self.everybodys(hashlib.sha256(found()).hexdigest())
        if len(set(answers)) > 1:
            others = ", ".join(str(rank) for rank, answer in enumerate(answers) if answer != answers[0])
            raise HalfmaskError(
                f"{what} of process {others} differ from those of process 0: the run stops. Give all processes the same data, settings and "
                "versions"
            )

    def barrier(self) -> None:  # noqa: D102
        self.everybodys(None)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:  # noqa: D102
        if self._broken:
            raise HalfmaskError(f"the processes of this run came apart before ({self._broken}): start them again")
        try:
            yield
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                # A launcher ends everybody because one has ended, who may have said why.
                self._read_note(0)
            said = getattr(error, "told", False)
            if not said and not isinstance(error, KeyboardInterrupt):
                self._broken = str(error) or type(error).__name__
                if self.root or not isinstance(error, ProcessLost):
                    self._notes.leave(error)
            if isinstance(error, HalfmaskError) and not self.root and not isinstance(error, ProcessLost):
                error.told = True
            raise

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:  # noqa: D102
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {one: signal.signal(one, signal.SIG_IGN) for one in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    # Exchanges.

    def _at_root(self, mine: Tensor) -> list[Tensor] | None:
        """Everybody's, in order, at root; None elsewhere. Not a reduction: on its way that would pass partial sums through the others."""
        mine = mine.contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.size)] if self.root else None
        self._wait(lambda: dist.gather(mine, parts, 0, async_op=True), hurried=True)
        return parts

    def everybodys(self, mine: T) -> list[T]:  # noqa: D102
        told = pickle.dumps(mine)
        lengths = [torch.zeros(1, dtype=torch.long) for _ in range(self.size)]
        self._wait(lambda: dist.all_gather(lengths, torch.tensor([len(told)]), async_op=True))
        longest = max(int(length) for length in lengths)
        padded = torch.frombuffer(bytearray(told.ljust(longest, b"\0")), dtype=torch.uint8)
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        self._wait(lambda: dist.all_gather(parts, padded, async_op=True))
        return [pickle.loads(part.numpy().tobytes()) for part in parts]

    def _send(self, made: bool, value: Any, hurried: bool) -> None:
        body, tensors = packed((made, value))
        shapes = [(tensor.dtype, tuple(tensor.shape), tensor.device.type) for tensor in tensors]
        head = pickle.dumps((body, shapes))
        self._broadcast(torch.tensor([len(head)]), hurried)
        self._broadcast(torch.frombuffer(bytearray(head), dtype=torch.uint8), hurried)
        for tensor in tensors:
            self._broadcast(tensor.detach().contiguous(), hurried)

    def _received(self, hurried: bool) -> tuple[bool, Any]:
        length = self._broadcast(torch.zeros(1, dtype=torch.long), hurried)
        head = self._broadcast(torch.zeros(int(length), dtype=torch.uint8), hurried)
        body, shapes = pickle.loads(head.numpy().tobytes())
        tensors = [self._broadcast(torch.empty(shape, dtype=dtype, device=_own(device)), hurried) for dtype, shape, device in shapes]
        made, value = unpacked(body, tensors)
        return made, value

    def _broadcast(self, tensor: Tensor, hurried: bool) -> Tensor:
        if tensor.numel():
            # Flags have no exchange of their own.
            sent = tensor.view(torch.uint8) if tensor.dtype == torch.bool and tensor.dim() else tensor
            self._wait(lambda: dist.broadcast(sent, 0, async_op=True), hurried)
        return tensor

    # Waiting, and who is waited for.

    def _wait(self, begin: Callable[[], Any], hurried: bool = False) -> None:
        begun = looked = time.monotonic()
        pause = _SOON
        try:
            work = begin()
            while not work.is_completed():
                time.sleep(pause)
                pause = min(_LATER, pause * 1.5)
                now = time.monotonic()
                if now - looked > _LOOK:
                    looked = now
                    self._look_at_the_others(now)
                if hurried and now - begun > max(self.patience, _STUCK * self._longest):
                    raise ProcessLost(self._gone(None, f"some process is stuck in a step ({now - begun:.0f} s)"))
            work.wait()
        except RuntimeError as error:
            self._read_note(NOTE)
            raise ProcessLost(self._gone(None, "the connection to another process broke")) from error
        if hurried:
            self._longest = max(self._longest, time.monotonic() - begun)

    def _look_at_the_others(self, now: float) -> None:
        self._read_note(0)
        for rank in range(1, self.size) if self.root else (0,):
            try:
                said = within(self.patience, partial(self._pulse.of, rank))
            except RuntimeError as error:  # the store's own
                raise ProcessLost(self._gone(None, "the launcher no longer answers")) from error
            if self._heard.get(rank, (b"", 0.0))[0] != said:
                self._heard[rank] = (said, now)
            elif now - self._heard[rank][1] > self.patience:
                raise ProcessLost(self._gone(rank, f"it gave no sign for {self.patience:g} s"))

    def _gone(self, rank: int | None, why: str) -> str:
        who = "a process of the run" if rank is None else f"process {rank} of {self.size}"
        return f"{who} is lost: {why}. Nothing that was paid for is forgotten; go on with --resume, on any number of processes"

    def _read_note(self, wait: float) -> None:
        """Say what another process refused, if it did."""
        error = self._notes.read(wait, max(NOTE, self.patience))
        if error is not None:
            self._broken = str(error)
            error.told = not self.root
            raise error

    def _leave(self) -> None:
        self._notes.wait_for_readers()
        self._pulse.stop()
        if dist.is_initialized() and not self._broken:
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()


def _short(drawn: Tensor) -> float:
    """A number that other units than these would hardly have; it has as many bits as cross exactly."""
    return float(int.from_bytes(hashlib.sha256(drawn.cpu().numpy().tobytes()).digest()[:6], "big"))


def _own(device: str) -> str:
    return f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device


def _machine() -> str:
    """Names the machine, so that processes on one know each other."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return boot.read_text().strip() if boot.is_file() else f"{socket.gethostname()}/{uuid.getnode()}"


def _interrupt(_signal: int, _frame: Any) -> None:
    raise KeyboardInterrupt
