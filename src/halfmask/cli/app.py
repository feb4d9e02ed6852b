"""The command `halfmask`.

Heavy modules are imported inside the commands, so that `--help` answers at once.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Annotated, NoReturn

import typer

from halfmask import __version__
from halfmask.cli import (
    account,
    audit,
    cache,
    certificate,
    check,
    compare,
    data,
    evaluate,
    export,
    ledger,
    plan,
    predict,
    pretrain,
    recipes,
    report,
    sanitise,
    serve,
    train,
)
from halfmask.errors import HalfmaskError
from halfmask.writing import is_about_writing, not_written

app = typer.Typer(
    name="halfmask",
    help="Train models that look at people with differential privacy, and prove it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"halfmask {__version__}")
        raise typer.Exit


@app.callback()
def _halfmask(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    if context.invoked_subcommand != "train" and int(os.environ.get("WORLD_SIZE", "1") or 1) > 1 and "RANK" in os.environ:
        # Each process would do all of it, into the same folder.
        raise HalfmaskError(
            f"'halfmask {context.invoked_subcommand}' is done by one process: of all commands 'train' alone goes with torchrun"
        )


app.command("plan")(plan.plan)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("predict")(predict.predict)
app.command("export")(export.export)
app.command("sanitise")(sanitise.sanitise)
app.command("compare")(compare.compare)
app.command("report")(report.report)
app.command("serve")(serve.serve)
app.command("pretrain")(pretrain.pretrain)
app.add_typer(data.app, name="data")
app.command("account")(account.account)
app.add_typer(ledger.app, name="ledger")
app.add_typer(certificate.app, name="certificate")
app.add_typer(cache.app, name="cache")
app.command("check")(check.check)
app.add_typer(audit.app, name="audit")
app.add_typer(recipes.app, name="recipes")


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit: 0 if all went well, 2 for a mistake the user can mend, 130 after Ctrl-C.

    Such mistakes are one line on standard error, never a stack trace. Anything else that escapes is a fault
    of ours, and its trace is wanted.
    """
    try:
        app(args=arguments, prog_name="halfmask")
    except HalfmaskError as error:
        if error.told:
            sys.exit(2)
        _fail(str(error))
    except OSError as error:
        if is_about_writing(error):
            _fail(not_written(str(error.filename or "a file"), error))
        if error.filename is None:
            raise
        _fail(f"{error.filename}: {error.strerror or type(error).__name__}")


def _fail(text: str) -> NoReturn:
    from halfmask.cli.console import fail

    # Where standard error goes to the disk that is full, the exit code has to do.
    with contextlib.suppress(OSError):
        fail(text)
    sys.exit(2)


if __name__ == "__main__":
    main()
