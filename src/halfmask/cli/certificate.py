"""`halfmask certificate`: is what a certificate says still so?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfmask.cli.settings import JsonOption
from halfmask.errors import HalfmaskError

app = typer.Typer(help="What a certificate says, held against the weights and the ledger.", no_args_is_help=True)


@app.callback()
def _certificate() -> None:
    """What a certificate says, held against the weights and the ledger."""


@app.command()
def verify(
    subject: Annotated[Path, typer.Argument(metavar="RUN|MODEL", help="The folder of a run, or a model file.")],
    certificate: Annotated[
        Path | None, typer.Argument(metavar="[CERTIFICATE]", help="The certificate.json of the model. (default: the run's own)")
    ] = None,
    weights_only: Annotated[
        bool, typer.Option("--weights-only", help="Where the ledger is not at hand: only whether the certificate is about these weights.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Check that a certificate is about these weights, that its numbers are those of its ledger, and that the ledger is whole.

    Exits with code 2 if anything differs, or cannot be checked.
    """
    from halfmask.cli.console import say, say_json
    from halfmask.cli.settings import use_threads
    from halfmask.privacy.verification import verify_certificate

    use_threads(None)
    model = subject / "model.safetensors" if subject.is_dir() else subject
    paper = certificate or (subject / "certificate.json" if subject.is_dir() else None)
    if paper is None:
        raise HalfmaskError(f"{subject} is a file: name its certificate.json too, or give the folder of a run")
    findings = verify_certificate(model, paper, weights_only)
    if as_json:
        say_json([{"check": one.check, "passed": one.passed, "found": one.found} for one in findings])
    else:
        for one in findings:
            say(f"{'ok    ' if one.passed else 'DIFFERS'} {one.check}: {one.found}", None if one.passed else "bold red")
    if not all(one.passed for one in findings):
        raise typer.Exit(2)


@app.command()
def pdf(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    out: Annotated[Path | None, typer.Option(help="The file. (default: certificate-RUN.pdf in the present folder)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a certificate for paper: two pages, with a place to sign.

    An installed Chromium prints it; where there is none, a page is written that any browser prints.
    """
    from halfmask.cli.console import say
    from halfmask.report.certificate_page import write_certificate

    target = out or Path(f"certificate-{run.resolve().name}.pdf")
    for place in (target, target.with_suffix(".html")):
        if place.exists() and not force:
            raise HalfmaskError(f"{place} is there already: name another with --out, or add --force to write over it")
    written, words = write_certificate(run, target)
    say(f"certificate: {written} ({words})")
