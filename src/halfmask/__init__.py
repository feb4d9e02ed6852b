"""Halfmask: train models that look at people so that they provably do not remember any one of them.

What stands here is imported when it is first asked for: `import halfmask` costs next to nothing, and `halfmask.account` needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfmask.data.records import Records
    from halfmask.gradients.engine import ClippingEngine
    from halfmask.privacy.costs import account
    from halfmask.tasks.base import Task

__version__ = "0.1.0"
__all__ = ["ClippingEngine", "Private", "Records", "Task", "__version__", "account", "train"]

_HOMES = {
    "ClippingEngine": "halfmask.gradients.engine",
    "Private": "halfmask.training.own_loop",
    "Records": "halfmask.data.records",
    "Task": "halfmask.tasks.base",
    "account": "halfmask.privacy.costs",
    "train": "halfmask.training.own",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'halfmask' has no attribute '{name}'")
    import importlib

    found = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
