"""`halfmask export`: the network of a run as one file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from halfmask.cli.settings import OUTPUT_PANEL, JsonOption, ThreadsOption, use_threads


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    form: Annotated[str, typer.Option("--format", metavar="onnx", help="What kind of file.", rich_help_panel=OUTPUT_PANEL)] = "onnx",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to. (default: model.onnx in the run's folder)", rich_help_panel=OUTPUT_PANEL)
    ] = None,
    flip_test: Annotated[
        bool, typer.Option("--flip-test", help="Let it look at the mirror image too: better joints for twice the work.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a file that is there.", rich_help_panel=OUTPUT_PANEL)] = False,
    threads: ThreadsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the network of a run as an ONNX file, with pre- and post-processing inside and the certificate in its metadata.

    Bytes of crops go in; joints in pixels and their scores come out (of other tasks: what the file's metadata says). The file is compared
    with torch on 100 pictures by onnxruntime; where the two differ by more than 1e-3 pixels, nothing is written.
    """
    from halfmask.cli.console import note, say, say_json, warn
    from halfmask.inference.export import as_json as body
    from halfmask.inference.export import export as do_export

    use_threads(threads)
    if not as_json:
        note("exporting, and comparing with torch …")
    done = do_export(run, out or run / "model.onnx", form, flip_test, overwrite)
    for caution in done.cautions:
        warn(caution)
    if as_json:
        say_json(body(done))
        return
    apart = ", ".join(f"{name} {value:.2g}" for name, value in done.deviation.items())
    say(f"{done.path}  {done.size / 1e6:.1f} MB; largest differences from torch on {done.tried} pictures: {apart}")
    if done.undecided:
        say(f"({done.undecided:.2%} of coordinates lie between two bins that are equally likely)")
