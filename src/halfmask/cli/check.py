"""`halfmask check`: is the engine exact on a model of one's own?"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from halfmask.cli.settings import JsonOption
from halfmask.errors import HalfmaskError
from halfmask.words import a_or_an


def check(
    factory: Annotated[
        str,
        typer.Argument(
            metavar="PACKAGE.MODULE:FACTORY",
            help="A function of no arguments that returns (model, loss_fn, batch): loss_fn(model, batch) gives one loss per record, "
            "batch is a tensor, or dicts, tuples and lists of them, one row per record. Modules in the current folder are found.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Compare the clipping engine with gradients taken one record at a time, for your own model. Use public or random records."""
    model, loss_fn, batch = _made_by(factory)

    from halfmask.cli.console import say, say_json
    from halfmask.gradients.check import check_model

    found = check_model(model, loss_fn, batch)
    if as_json:
        told = {"agrees": found.agrees, "path": found.path, "tolerance": found.tolerance, "norms": found.norms, "parameters": found.errors}
        times = {"seconds": found.seconds, "plain_seconds": found.plain_seconds, "slow_seconds": found.slow_seconds}
        say_json(told | times | {"slow": found.slow})
    else:
        width = max(len(name) for name in [*found.errors, "norms of the records"])
        for name, error in [*sorted(found.errors.items(), key=lambda item: -item[1]), ("norms of the records", found.norms)]:
            say(f"{name:{width}s}  {error:.1e}" + ("" if error <= found.tolerance else "   too large"))
        verdict = "agrees with" if found.agrees else "differs from"
        say(f"a clipped sum takes {found.seconds * 1e3:.3g} ms, {found.seconds / found.plain_seconds:.3g} times a plain gradient")
        for what, why in found.slow.items():
            share = f"; {found.slow_seconds[what] * 1e3:.3g} ms of it" if what in found.slow_seconds else ""
            say(f"slow: no rule for {what}: {why}{share}")
        say(f"the engine ({found.path} path) {verdict} one record at a time (tolerance {found.tolerance:g})")
    if not found.agrees:
        raise typer.Exit(1)


def _made_by(factory: str) -> tuple[Any, Any, Any]:
    from torch import nn

    from halfmask.gradients.pieces import count_records

    module_name, separator, name = factory.partition(":")
    if not separator or not name:
        raise HalfmaskError(f"'{factory}': expected PACKAGE.MODULE:FACTORY, such as mymodels.pose:make")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        made = getattr(importlib.import_module(module_name), name, None)
        if not callable(made):
            found = "nothing of that name" if made is None else f"{a_or_an(type(made).__name__)}"
            raise HalfmaskError(f"{module_name} has {found} at '{name}': expected a function that returns (model, loss_fn, batch)")
        parts = made()
    except HalfmaskError:
        raise
    except Exception as error:  # whatever a user's module raises is theirs to mend
        said = str(error).splitlines()[0] if str(error) else ""
        raise HalfmaskError(
            f"cannot use {factory}: {type(error).__name__}: {said}. "
            "Run this from the folder that holds it, and give a function without arguments"
        ) from None
    finally:
        sys.path.remove(here)
    if not (isinstance(parts, tuple) and len(parts) == 3 and isinstance(parts[0], nn.Module) and callable(parts[1])):
        raise HalfmaskError(f"{factory} returned {type(parts).__name__}: expected (model, loss_fn, batch)")
    if not count_records(parts[2]):
        raise HalfmaskError(f"the batch of {factory} holds no record: give at least 2")
    return parts
