"""The addresses of the server, and what each answers with."""

from __future__ import annotations

import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from halfmask.errors import HalfmaskError
from halfmask.serve import calculator, pages, pictures
from halfmask.serve.answers import FILE_POLICY, Refused, lines, policy_for, refusal
from halfmask.serve.folder import ServedFolder
from halfmask.serve.guard import Guard
from halfmask.serve.live import Watch
from halfmask.serve.report import Report
from halfmask.serve.working import Desk

_FAULT = "something went wrong in Halfmask itself: the terminal says what"
Work = Iterable[Callable[[], Mapping[str, Any]]]


@dataclass
class Site:
    """What the addresses share: the folder, and a desk for each kind of long work."""

    folder: ServedFolder
    device: str | None = None
    accounting: Desk = field(default_factory=lambda: Desk(4))
    reporting: Desk = field(default_factory=lambda: Desk(8))
    # One at a time reads its picture, too: as many are held in memory as may wait.
    looking: Desk = field(default_factory=lambda: Desk(2))
    holding: int = 0

    def __post_init__(self) -> None:
        self.watch = Watch(self.folder)
        self.reports = Report(self.folder, self.watch)
        self._models: Any = None

    @property
    def title(self) -> str:
        """What the folder is called."""
        return self.folder.root.name

    async def report(self, request: Request) -> Response:
        """The report over all runs."""
        page = await self.reporting.do(self.reports.page)
        return HTMLResponse(page, headers={"Content-Security-Policy": policy_for(page)})

    async def live(self, request: Request) -> Response:
        """How far each run has come."""
        return JSONResponse(await self.reporting.do(self.watch.look))

    async def report_main(self, request: Request) -> Response:
        """The report's content, for a page that is open."""
        return JSONResponse(await self.reporting.do(self.reports.main))

    async def file(self, request: Request) -> Response:
        """A file that a run has released."""
        name = request.path_params["name"]
        body, kind = await self.reporting.do(lambda: self.folder.read(name))
        return Response(body, media_type=kind, headers={"Content-Security-Policy": FILE_POLICY})

    async def static(self, request: Request) -> Response:
        """A script or a style of ours."""
        found = pages.asset(request.path_params["name"])
        if found is None:
            raise Refused(404, "there is no such page")
        return Response(found[0], media_type=found[1], headers={"Cache-Control": "private, max-age=600"})

    async def calculator(self, request: Request) -> Response:
        """The form."""
        return HTMLResponse(pages.calculator(self.title))

    async def account(self, request: Request) -> Response:
        """What a plan costs."""
        pairs = request.query_params.multi_items()
        if len({name for name, _ in pairs}) != len(pairs):
            raise Refused(422, "something is asked twice")
        return lines(_told(self.accounting, calculator.work(calculator.parse(dict(pairs)))))

    async def look_page(self, request: Request) -> Response:
        """The place for a picture."""
        runs = await self.reporting.do(self._lookable)
        return HTMLResponse(pages.look(self.title, [{"name": name} for name in runs]))

    async def look(self, request: Request) -> Response:
        """What models see on the picture in the request's body, which nothing but memory ever holds."""
        if self.holding >= 4:
            raise Refused(503, "other pictures are being looked at: try again in a moment")
        self.holding += 1
        try:
            data = await pictures.receive(request.headers.get("content-length"), request.stream())
            known = await self.reporting.do(self._lookable)
            wanted = list(dict.fromkeys(request.query_params.getlist("run"))) or list(known)
            if any(name not in known for name in wanted):
                raise Refused(404, "there is no such run with a model in the folder")
            picture = await self.looking.do(lambda: pictures.decode(data))
        finally:
            self.holding -= 1
        # PyTorch is wanted from here on, and takes its time to load.
        from halfmask.serve.looking import Models, look

        self._models = self._models or Models(self.device)
        return lines(_told(self.looking, look(self._models, {name: known[name] for name in wanted}, picture)))

    def _lookable(self) -> dict[str, Path]:
        """Runs that have released weights."""
        return {name: path for name, path in self.folder.runs().items() if (path / "model.safetensors").is_file()}


def build_app(folder: ServedFolder, hosts: frozenset[str], token: str, device: str | None = None) -> ASGIApp:
    """The whole server, behind its guard."""
    site = Site(folder, device)
    routes = [
        Route("/", site.report),
        Route("/calculator", site.calculator),
        Route("/look", site.look_page),
        Route("/api/live", site.live),
        Route("/api/report", site.report_main),
        Route("/api/account", site.account),
        Route("/api/look", site.look, methods=["POST"]),
        Route("/static/{name}", site.static),
        Route("/{name:path}", site.file),
    ]
    handlers: Any = {Refused: _refuse, HalfmaskError: _mistake, HTTPException: _unknown, Exception: _fault}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), hosts, token)


async def _told(desk: Desk, work: Work) -> AsyncIterator[Mapping[str, Any]]:
    """Piece by piece; an answer that has begun cannot be refused any more, so what goes wrong is its last line."""
    for piece in work:
        try:
            yield await desk.do(piece)
        except Refused as refused:
            yield {"error": refused.reason}
            return
        except HalfmaskError as error:
            yield {"error": str(error)}
            return
        except Exception:
            traceback.print_exc()
            yield {"error": _FAULT}
            return


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return refusal(error)


async def _mistake(request: Request, error: Exception) -> Response:
    return refusal(Refused(422, str(error)))


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(
        Refused(error.status_code, "this address takes no such request" if error.status_code == 405 else "there is no such page")
    )


async def _fault(request: Request, error: Exception) -> Response:
    return refusal(Refused(500, _FAULT))
