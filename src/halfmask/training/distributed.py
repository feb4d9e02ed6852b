"""One run on many processes, with the promise of one process.

    torchrun --nproc-per-node=2 -m halfmask train pose/figures --epsilon 0.8 --out runs/first

Every process takes the same steps of the same loop. What differs is said here, by a `Group`: of each batch a process works on its share,
clipped sums are added up at *root* (the first process), and what root makes is handed to all. Root alone holds the ledger, the folder and
the noise; the others are given in their place something that refuses to be used. For a process that is alone each of these is the identity,
so that the loop asks nobody how many there are.

Bytes are moved by torch.distributed: gloo between processors, NCCL between GPUs. What crosses is private in part: un-noised sums, and the
key of the coins. So processes on several machines are refused until whoever starts them declares the network between them encrypted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

import numpy as np
import torch
from torch import Tensor, nn

from halfmask.errors import HalfmaskError
from halfmask.gradients.clipped import Clipped
from halfmask.training.progress import Progress

T = TypeVar("T")
Kind = TypeVar("Kind", bound=Clipped)
Rows = TypeVar("Rows", Tensor, np.ndarray)

# How long a process that does not answer is waited for, in seconds.
PATIENCE = 60.0


@dataclass(frozen=True)
class Joining:
    """How processes come together, as whoever starts them says.

    Attributes:
        patience: seconds after which a process that does not answer is taken to be lost.
        encrypted: that the network between several machines is encrypted and closed to others.
        shard: that each process opens the images of its own units alone.
    """

    patience: float = PATIENCE
    encrypted: bool = False
    shard: bool = False

    @classmethod
    def from_environment(cls) -> Joining:
        """For programs that call `halfmask.train` under torchrun: the flags of the command as variables."""
        said = os.environ.get("HALFMASK_PATIENCE", str(PATIENCE))
        try:
            patience = float(said)
        except ValueError:
            patience = -1.0
        if not patience > 0:
            raise HalfmaskError(f"HALFMASK_PATIENCE is '{said}': expected seconds, more than 0")
        return cls(patience, _flag("HALFMASK_ENCRYPTED_NETWORK"), _flag("HALFMASK_SHARD_PRIVATE"))


def _flag(name: str) -> bool:
    said = os.environ.get(name, "").strip().lower()
    if said not in ("", "0", "false", "no", "1", "true", "yes"):
        raise HalfmaskError(f"{name} is '{said}': expected 1 or 0")
    return said in ("1", "true", "yes")


class ProcessLost(HalfmaskError):
    """Another process of the run died or does not answer. What was paid is on record, and the run can go on."""


class Elsewhere:
    """Stands for what root alone holds: a process that would use it is at fault, and is told so."""

    def __init__(self, what: str):
        self._what = what

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise HalfmaskError(f"{self._what} is held by the first process of a run alone, and another one asked for its '{name}'")


class Group:
    """The processes of a run; as it stands, a single one, which is root and whose share is all of it."""

    rank, size = 0, 1
    sharded = False
    machines = 1

    @property
    def root(self) -> bool:
        """Whether this process holds the ledger, the folder and the noise."""
        return self.rank == 0

    def share(self, drawn: Rows, owners: np.ndarray | None = None) -> Rows:
        """Of what all have drawn alike, what this process works on.

        Formal guarantees: everything drawn is in exactly one share.

        Args:
            owners: the process that has opened each of all that might be drawn, where each has opened its share; else they take turns,
                which gives all of them as much to do.
        """
        return drawn

    def sum(self, clipped: Kind, drawn: Tensor) -> Kind:
        """Everybody's clipped sum, at root; elsewhere what this process had.

        Formal guarantees: as for `Clipped.plus`, because shares have no unit in common. No process but root ever holds the sum.

        Args:
            drawn: all units of the step, as this process drew them: all must have drawn the same.
        """
        return clipped

    def mean(self, gradient: Tensor, loss: float | None, records: int) -> tuple[Tensor, float | None]:
        """The mean over everybody's records of gradients and losses that are means over each one's: for what is public."""
        return gradient, loss

    def from_root(self, make: Callable[[], T], hurried: bool = False) -> T:
        """What root makes, for all; if it refuses, all refuse. Nobody goes on before root has made it.

        Args:
            hurried: that root takes no longer for it than for a step, so that one who waits much longer waits in vain.
        """
        return make()

    def at_root(self, make: Callable[[], T], what: str) -> T:
        """What root makes for itself alone; elsewhere something that refuses to be used."""
        return make()

    def progress(self, told: Progress) -> Progress:
        """How this process tells what it is doing: root speaks for all."""
        return told if self.root else Progress()

    def spread(self, model: nn.Module) -> None:
        """Give everybody's model the weights and buffers of root's."""

    def agree(self, what: str, found: Callable[[], bytes]) -> None:
        """Stop if processes that must have found the same have not."""

    def everybodys(self, mine: T) -> list[T]:
        """What each has found, to all, in the order of the processes."""
        return [mine]

    def barrier(self) -> None:
        """Wait until all are here."""

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """What goes wrong inside, in one process, is told to all, and said once."""
        yield

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Signals by which a launcher ends what is left of a run do not cut off what is being written down."""
        yield

    @property
    def wire(self) -> str:
        """Where private intermediate results were, in the words of the certificate."""
        kept = "un-noised sums and the key of the coins"
        if self.machines == 1:
            return f"the memory of the machine that took the steps, where {kept} were: nobody else is taken to have read it"
        return (
            f"the network between {self.machines} machines, which {kept} crossed: it is taken to be encrypted and closed to others "
            "(declared by whoever started the run, and not checked)"
        )


# A process by itself.
ALONE = Group()
_joined: Group | None = None


def launched() -> bool:
    """Whether a launcher (torchrun) started this process as one of several."""
    size = os.environ.get("WORLD_SIZE", "1")
    return "RANK" in os.environ and size.isdigit() and int(size) > 1


def is_root() -> bool:
    """Whether this process speaks for the run, before or after it has joined the others."""
    return not launched() or os.environ["RANK"] == "0"


def group(joining: Joining | None = None) -> Group:
    """The processes that this one was started with; itself alone, if it was started alone. Those that are there already are asked again."""
    global _joined
    if not launched():
        return ALONE
    if _joined is None:
        # Only where there is somebody to talk to.
        from halfmask.training.ranks import Ranks

        _joined = Ranks.join(joining or Joining.from_environment())
    return _joined


def refuse_several(what: str) -> None:
    """Refuse what is done by one process, where several were started."""
    if launched():
        raise HalfmaskError(f"{what} is done by one process, and torchrun started {os.environ['WORLD_SIZE']}: start it without torchrun")


def device_here(name: str) -> str:
    """Of several GPUs on a machine, the one of this process."""
    if launched() and name in ("auto", "cuda") and torch.cuda.is_available():
        return f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
    return name


def elsewhere(what: str) -> Any:
    """What a process that is not root is given in place of what root holds."""
    return cast(Any, Elsewhere(what))
