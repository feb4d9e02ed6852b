"""A critic whose one trained layer holds means of what pictures look like."""

from __future__ import annotations

import pytest
import torch

from halfmask.errors import HalfmaskError
from halfmask.tasks.generate_means import COLOURS, MeansCritic

LIMBS = ((0, 1), (1, 2))


def made() -> MeansCritic:
    return MeansCritic(LIMBS, 32, 32)


def somebody(count: int = 4, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    joints = torch.cat([4 + 24 * torch.rand(count, 3, 2, generator=generator), torch.ones(count, 3, 1)], -1)
    return 2 * torch.rand(count, 3, 32, 32, generator=generator) - 1, joints


def test_each_limb_and_cell_holds_shares_of_colours() -> None:
    critic, (pictures, joints) = made(), somebody()
    held = critic.features(pictures, joints).view(4, -1, len(COLOURS))
    assert held.shape[1] == len(LIMBS) + 12
    assert torch.allclose(held[:, :2].sum(-1), torch.ones(4, 2), atol=1e-4) and bool((held >= 0).all())


def test_a_limb_says_the_colour_that_it_has() -> None:
    critic, (pictures, joints) = made(), somebody(1)
    pictures[:] = torch.tensor([0.75, -0.75, -0.75])[None, :, None, None]
    held = critic.features(pictures, joints).view(-1, len(COLOURS))
    assert COLOURS[int(held[0].argmax())] == (0.75, -0.75, -0.75) and float(held[0].max()) > 0.7


def test_a_joint_that_is_not_known_holds_nothing() -> None:
    critic, (pictures, joints) = made(), somebody()
    joints[1, 2, 2] = 0
    held = critic.features(pictures, joints).view(4, -1, len(COLOURS))
    assert float(held[1, 1].abs().max()) == 0 and float(held[1, 0].sum()) > 0.9


def test_its_gradient_is_what_it_looks_at() -> None:
    critic, (pictures, joints) = made(), somebody(1)
    (gradient,) = torch.autograd.grad(critic(pictures, joints).sum(), critic.linear.weight)
    assert torch.allclose(gradient[0], critic.features(pictures, joints)[0])


def test_public_people_are_about_one_long_and_zero_on_average() -> None:
    critic = made()
    critic.fit([somebody(8, seed) for seed in range(3)])
    found = torch.cat([critic.features(*somebody(8, seed)) for seed in range(3)])
    assert float(found.mean(0).norm()) < 1e-4 and abs(float(found.norm(dim=1).mean()) - 1) < 1e-4


def test_joints_without_limbs_are_refused() -> None:
    with pytest.raises(HalfmaskError, match="limbs"):
        MeansCritic((), 32, 32)
