"""`halfmask serve`: runs on a page of this machine, while they train."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from halfmask.cli.settings import DeviceOption, ThreadsOption
from halfmask.errors import HalfmaskError

_NEEDED = {"starlette": "Starlette", "uvicorn": "uvicorn", "PIL": "Pillow"}


def serve(
    runs: Annotated[Path, typer.Argument(help="Folder of runs, of comparisons, or of one run.", show_default=True)] = Path("runs"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on, on 127.0.0.1 alone; 0 for any that is free.")] = 8765,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
    device: DeviceOption = None,
    threads: ThreadsOption = None,
) -> None:
    """Show the report over a folder of runs, live while they train; a calculator; and what each model sees on a picture.

    Only this machine can reach it, and only what runs have released can be read. To show a picture to models needs the token that is
    printed here, which the printed address brings along. Ctrl-C ends it.
    """
    check_installed()
    from halfmask.cli.console import note, say
    from halfmask.cli.settings import quieten
    from halfmask.serve.folder import ServedFolder
    from halfmask.serve.server import Serving

    quieten()
    folder = ServedFolder(runs)
    if threads is not None:
        from halfmask.cli.settings import use_threads

        use_threads(threads)
    serving = Serving(folder, port, device)
    count = len(folder.runs())
    say(f"serving {count} run{'s' * (count != 1)} of {runs} at {serving.address_with_token}")
    note(f"token: {serving.token}   (Ctrl-C ends it)")
    if open_browser:
        import webbrowser

        # The port listens already: a browser that is quicker than the server waits for it.
        webbrowser.open(serving.address_with_token)
    serving.run()
    note("stopped")


def check_installed() -> None:
    """Refuse, in a line, where the server's parts are not installed."""
    missing = [name for module, name in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise HalfmaskError(f"'halfmask serve' needs {', '.join(missing)}: install what is missing with pip install 'halfmask[serve]'")
