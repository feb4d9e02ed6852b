"""Halfmask: train models that look at people so that they provably do not remember any one of them.

What stands here is imported when it is first asked for: `import halfmask` costs next to nothing, and `halfmask.account` needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from halfmask.data.records import Datasets, Records
    from halfmask.errors import HalfmaskError
    from halfmask.gradients.engine import ClippingEngine
    from halfmask.inference.sanitise import sanitise
    from halfmask.metrics.names import MetricInfo
    from halfmask.privacy.costs import account
    from halfmask.tasks.base import Scores, Task, register
    from halfmask.training.own import train
    from halfmask.training.own_loop import Private
    from halfmask.training.running import run
    from halfmask.views.base import Seen, View

__version__ = "0.1.0"
__all__ = [
    "ClippingEngine",
    "Datasets",
    "HalfmaskError",
    "MetricInfo",
    "Private",
    "Records",
    "Scores",
    "Seen",
    "Task",
    "View",
    "__version__",
    "account",
    "register",
    "run",
    "sanitise",
    "train",
]

_HOMES = {
    "ClippingEngine": "halfmask.gradients.engine",
    "Datasets": "halfmask.data.records",
    "HalfmaskError": "halfmask.errors",
    "MetricInfo": "halfmask.metrics.names",
    "Private": "halfmask.training.own_loop",
    "Records": "halfmask.data.records",
    "Scores": "halfmask.tasks.base",
    "Task": "halfmask.tasks.base",
    "Seen": "halfmask.views.base",
    "View": "halfmask.views.base",
    "account": "halfmask.privacy.costs",
    "register": "halfmask.tasks.base",
    "run": "halfmask.training.running",
    "sanitise": "halfmask.inference.sanitise",
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
