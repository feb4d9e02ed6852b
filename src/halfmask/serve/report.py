"""The report over the folder that is served, made again when something has changed."""

from __future__ import annotations

from halfmask.errors import HalfmaskError
from halfmask.serve import pages
from halfmask.serve.folder import ServedFolder
from halfmask.serve.live import Watch


class Report:
    """The last report that was made, and of what."""

    def __init__(self, folder: ServedFolder, watch: Watch):
        self.folder, self.watch = folder, watch
        self._version, self._page = "", ""

    def page(self) -> str:
        """The report as of now, with the server's bar and the runs that are training above it."""
        version = self.watch.version()
        if version != self._version:
            self._page, self._version = pages.with_live(self._made(), self.folder.root.name, version), version
        return self._page

    def _made(self) -> str:
        runs = self.folder.runs()
        if not runs:
            return pages.no_report(f"{self.folder.root} holds no runs yet. They appear here as soon as 'halfmask train' writes there.")
        try:
            return "<!doctype html><html><head><title>Runs</title></head><body>" + "".join(f"<p>{n}</p>" for n in runs) + "</body></html>"
        except HalfmaskError as error:
            return pages.no_report(str(error))
