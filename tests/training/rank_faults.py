"""Mistakes that a run on several processes could make, each planted into a process before it begins."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import halfmask.training.ranks as ranks_module
from halfmask.gradients.mechanism import Mechanism
from halfmask.privacy.account import Account
from halfmask.privacy.noise import RandomStream
from halfmask.privacy.sampling import PoissonSampler
from halfmask.training.loop import Trainer
from halfmask.training.outputs import RunFolder, Unwritten
from halfmask.training.private import PrivateHalf
from halfmask.training.ranks import Ranks
from halfmask.training.spending import Payments


def noise_on_every_rank(rank: int) -> None:
    """As if each added noise to its own part, as the one process of a run does."""
    added_up, stream = Ranks.sum, RandomStream.seeded("noise", 1)

    def noised(self: Ranks, clipped: Any, drawn: Tensor) -> Any:
        if rank:
            for tensor in clipped.tensors():
                tensor += clipped.clip_norm * stream.gaussian(tensor.numel()).view_as(tensor)
        return added_up(self, clipped, drawn)

    Ranks.sum = noised  # type: ignore[method-assign]


def noise_on_none(rank: int) -> None:
    """As if root thought that another one adds it."""
    RandomStream.gaussian = lambda self, count, *_, **__: torch.zeros(count, dtype=torch.float64)  # type: ignore[method-assign]


def unit_on_two_ranks(rank: int) -> None:
    """As if shares overlapped."""
    share = Ranks.share
    Ranks.share = (
        lambda self, drawn, owners=None: (  # type: ignore[method-assign]
            torch.cat([drawn[:1], share(self, drawn, owners)]) if rank and isinstance(drawn, Tensor) else share(self, drawn, owners)
        )
    )


def unit_on_two_ranks_another_on_none(rank: int) -> None:
    """As if shares overlapped, and were as many together as were drawn."""
    share = Ranks.share

    def shifted(self: Ranks, drawn: Any, owners: Any = None) -> Any:
        mine = share(self, drawn, owners).clone() if isinstance(drawn, Tensor) else share(self, drawn, owners)
        if rank and len(mine):
            mine[0] = drawn[0]
        return mine

    Ranks.share = shifted  # type: ignore[method-assign]


def coins_per_rank(rank: int) -> None:
    """As if each process had drawn a key of its own."""
    draw = PoissonSampler.draw

    def own(self: PoissonSampler) -> Tensor:
        for _ in range(rank):
            draw(self)
        return draw(self)

    PoissonSampler.draw = own  # type: ignore[method-assign]


def payment_after_the_coins(rank: int) -> None:
    """As if a step were paid for when it has been taken."""
    take_step, due = Trainer.take_step, list[Callable[[], None]]()
    ahead = Payments.ahead
    Payments.ahead = lambda self, steps, half: due.append(lambda: ahead(self, steps, half))  # type: ignore[method-assign]

    def late(self: Trainer) -> None:
        take_step(self)
        while due:
            due.pop()()

    Trainer.take_step = late  # type: ignore[method-assign]


def nobody_waits_for_the_payment(rank: int) -> None:
    """As if root paid and the others went on."""

    def alone(self: Payments, steps: int, half: PrivateHalf) -> None:
        if self.setup.group.root:
            self.setup.account.pay(self._spend(self.standing.paid, steps, half))
        self.standing.paid += steps

    Payments.ahead = alone  # type: ignore[method-assign]
    slow_payments(rank)


def slow_payments(rank: int) -> None:
    """No fault: a disk that takes its time."""
    pay = Account.pay
    Account.pay = lambda *args: (time.sleep(0.1), pay(*args))[1]  # type: ignore[method-assign]


def divided_by_the_local_batch(rank: int) -> None:
    """As if each took the mean over its own share, and root the mean of means."""
    release = Mechanism.release_coordinates
    Mechanism.release_coordinates = lambda self, clipped, subspace: release(  # type: ignore[method-assign]
        replace(self, expected_batch=self.expected_batch / 2), clipped, subspace
    )


def divided_by_the_realised_batch(rank: int) -> None:
    """As if a part were divided by how many are in it before it is sent."""
    added_up = Ranks.sum

    def mean(self: Ranks, clipped: Any, drawn: Tensor) -> Any:
        for tensor in clipped.tensors():
            tensor /= max(1, len(clipped.norms))
        return added_up(self, clipped, drawn)

    Ranks.sum = mean  # type: ignore[method-assign]


def everybody_holds_the_sum(rank: int) -> None:
    """As if sums were reduced to all."""
    added_up = Ranks.sum

    def to_all(self: Ranks, clipped: Any, drawn: Tensor) -> Any:
        found = added_up(self, clipped, drawn)
        for tensor in found.tensors():
            tensor.copy_(self.from_root(lambda tensor=tensor: tensor.clone()))
        return found

    Ranks.sum = to_all  # type: ignore[method-assign]


def follower_writes(rank: int) -> None:
    """As if every process kept a log."""
    Unwritten.log = RunFolder.log  # type: ignore[method-assign]


def weights_drift(rank: int) -> None:
    """As if a process had another version of an optimiser."""
    take_step = Trainer.take_step

    def drifting(self: Trainer) -> None:
        take_step(self)
        if rank == 1:
            with torch.no_grad():
                next(iter(self.engine.parameters.values())).view(-1)[0] += 1e-6

    Trainer.take_step = drifting  # type: ignore[method-assign]


def follower_asks_the_ledger(rank: int) -> None:
    """As if a process that is not root paid by itself."""
    take_step = Trainer.take_step

    def asking(self: Trainer) -> None:
        if rank == 1:
            self.setup.account.ledger.spends()
        take_step(self)

    Trainer.take_step = asking  # type: ignore[method-assign]


def follower_draws_noise(rank: int) -> None:
    """As if a process that is not root released by itself."""
    added_up = PrivateHalf.summed

    def releasing(self: PrivateHalf, pieces: Any) -> Any:
        clipped = added_up(self, pieces)
        if rank == 1:
            self.mechanism.release(clipped)
        return clipped

    PrivateHalf.summed = releasing  # type: ignore[method-assign]


def at_the_third_step(act: Callable[[], None], whose: int = 1) -> Callable[[int], None]:
    """Something that befalls a process in the middle of a step."""

    def plant(rank: int) -> None:
        draw, steps = PoissonSampler.draw, [0]

        def befallen(self: PoissonSampler) -> Tensor:
            steps[0] += 1
            if rank == whose and steps[0] == 3:
                act()
            return draw(self)

        PoissonSampler.draw = befallen  # type: ignore[method-assign]

    return plant


def slow_steps(rank: int) -> None:
    """No fault: steps in which there is time for somebody to come in."""
    draw = PoissonSampler.draw
    PoissonSampler.draw = lambda self: (time.sleep(0.1), draw(self))[1]  # type: ignore[method-assign]


def killed_early(rank: int) -> None:
    """A process that dies when the plan is reserved and nothing is paid yet."""
    begin = Payments.begin

    def dying(self: Payments, half: PrivateHalf) -> None:
        begin(self, half)
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    Payments.begin = dying  # type: ignore[method-assign]


def interrupted_early(rank: int) -> None:
    """No fault: somebody who thinks better of it before the first step."""
    begin = Payments.begin

    def thinking(self: Payments, half: PrivateHalf) -> None:
        begin(self, half)
        raise KeyboardInterrupt

    Payments.begin = thinking  # type: ignore[method-assign]


def of_other_machines(rank: int) -> None:
    """No fault: each process on a machine of its own."""
    ranks_module._machine = lambda: f"machine {rank}"


FAULTS: dict[str, Callable[[int], None]] = {
    name: found for name, found in globals().items() if callable(found) and getattr(found, "__module__", "") == __name__
}
FAULTS |= {
    "early killed": killed_early,
    "killed": at_the_third_step(lambda: os.kill(os.getpid(), signal.SIGKILL)),
    "root killed": at_the_third_step(lambda: os.kill(os.getpid(), signal.SIGKILL), 0),
    "stopped": at_the_third_step(lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    "root stopped": at_the_third_step(lambda: os.kill(os.getpid(), signal.SIGSTOP), 0),
    "stuck": at_the_third_step(lambda: time.sleep(600)),
    "root stuck": at_the_third_step(lambda: time.sleep(600), 0),
}
