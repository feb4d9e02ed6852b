"""Starting and stopping the server: on this machine's own address, and on no other."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket

import uvicorn

from halfmask.errors import HalfmaskError
from halfmask.serve.app import build_app
from halfmask.serve.folder import ServedFolder
from halfmask.serve.guard import hosts_of, new_token

ADDRESS = "127.0.0.1"
# Ctrl-C waits this long for answers that are under way.
_SECONDS_TO_END = 1
_MOST_CONNECTIONS, _LARGEST_HEAD = 64, 16 * 1024


class _Server(uvicorn.Server):
    """Ends without a word about answers that were under way: whoever pressed Ctrl-C knows."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)


class Serving:
    """A server that has its port, and answers once it runs."""

    def __init__(self, folder: ServedFolder, port: int, device: str | None = None):
        self._socket = _listen(port)
        self.port = int(self._socket.getsockname()[1])
        self.token = new_token()
        config = uvicorn.Config(
            build_app(folder, hosts_of(self.port), self.token, device),
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            # Its own would close every handler there is, and with one of them standard error.
            log_config=None,
            log_level="error",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            h11_max_incomplete_event_size=_LARGEST_HEAD,
            timeout_graceful_shutdown=_SECONDS_TO_END,
        )
        self.server = _Server(config)

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://{ADDRESS}:{self.port}/"

    @property
    def address_with_token(self) -> str:
        """The same with the token behind a #, where a browser keeps it to itself."""
        return f"{self.address}#token={self.token}"

    def run(self) -> None:
        """Answer until Ctrl-C, which is how it is meant to end."""
        try:
            with contextlib.suppress(KeyboardInterrupt):
                self.server.run(sockets=[self._socket])
        finally:
            self._socket.close()


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    if os.name == "posix":
        # A port that was in use a moment ago is free again; one that is in use is not, on such systems.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((ADDRESS, port))
        listener.listen()
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise HalfmaskError(
                f"port {port} of this machine is in use, perhaps by another 'halfmask serve': stop that one, or choose another with --port "
                "(0 for any that is free)"
            ) from None
        raise HalfmaskError(f"port {port} of this machine cannot be used: {error.strerror}. Choose another with --port") from None
    return listener
