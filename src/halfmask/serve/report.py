"""The report over the folder that is served, made again when something has changed."""

from __future__ import annotations

import traceback
from pathlib import Path

from halfmask.errors import HalfmaskError
from halfmask.serve import pages
from halfmask.serve.folder import ServedFolder
from halfmask.serve.live import Watch

# How far below a folder a report looks for runs by itself.
_DEPTH = 3


class Report:
    """The last report that was made, and of what."""

    def __init__(self, folder: ServedFolder, watch: Watch):
        self.folder, self.watch = folder, watch
        self._page, self._main = ("", ""), ("", "")

    def page(self) -> str:
        """The report as of now, with the server's bar and the runs that are training above it."""
        version = self.watch.version()
        if version != self._page[0]:
            self._page = version, pages.with_live(self._made(whole=True), self.folder.root.name, version)
        return self._page[1]

    def main(self) -> dict[str, str]:
        """What of the page changes while runs train, and its version."""
        version = self.watch.version()
        if version != self._main[0]:
            self._main = version, self._made(whole=False)
        return {"version": version, "main": self._main[1]}

    def _made(self, whole: bool) -> str:
        # It knows every task, and so takes its time to load.
        from halfmask.report.build import report_main, report_page

        if not self.folder.runs():
            reason = f"{self.folder.root} holds no runs yet. They appear here as soon as 'halfmask train' writes there."
        else:
            try:
                return report_page(self._folders(), live=True) if whole else report_main(self._folders())
            except HalfmaskError as error:
                reason = str(error)
            except Exception as error:
                # One broken folder must not end what is shown of all others' progress.
                traceback.print_exc()
                reason = f"the report could not be made ({type(error).__name__}): a run may be broken, and the terminal says more"
        return pages.no_report(reason) if whole else pages.no_main(reason)

    def _folders(self) -> list[Path]:
        """The whole folder, whose comparisons and audits belong to a report too; or only its runs, where more must not be looked at."""
        runs = self.folder.runs()
        deep = any(len(path.relative_to(self.folder.root).parts) > _DEPTH for path in runs.values())
        if deep or self.folder.holds_private_storage or self.folder.leads_out(self.folder.root):
            return list(runs.values())
        return [self.folder.root]
