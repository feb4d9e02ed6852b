"""How a run tells what it is doing. Nothing that reaches a person from here may be private."""

from __future__ import annotations


class Progress:
    """Says nothing; the command replaces it by bars and lines."""

    def message(self, text: str) -> None:
        """A line of information."""

    def warn(self, text: str) -> None:
        """A line the user should not miss."""

    def stage(self, name: str, done: int, total: int) -> None:
        """Preparation: `done` of `total` pieces of the stage `name`."""

    def step(self, step: int, total: int, public_loss: float | None, epsilon: float | None) -> None:
        """Training: steps done, the loss on public people, ε spent so far by this run."""
