"""`agentsys report --follow`: the HTML report of runs that go on, served to browsers of this machine alone.

The page is the one that `agentsys report` writes. It asks for a stamp every two seconds, and loads itself again when
there is more. Nothing can be changed from it. Other web pages can neither ask nor include what is served.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agentsys.analysis.html_report.page import HtmlReport
from agentsys.cli.cli_output import print_line
from agentsys.errors import ConfigError
from agentsys_plugins.serve.serve_command import announce, wait_for_interrupt
from agentsys_plugins.serve.served_model.model_application import check_access
from agentsys_plugins.serve.served_model.model_server import Server
from agentsys_plugins.serve.served_model.wire_format import RequestRefused

_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
_REST = 10
"""Times as long as making the report took, until it is made again: a run keeps nine tenths of a core."""


class FollowedReport:
    """The application: the report, made anew when records have been added and somebody asks.

    Args:
        make: Makes the report for a stamp; ConfigError where there is no case yet.
        folders: The folders that it reads.
    """

    def __init__(self, make: Callable[[str], HtmlReport], folders: Sequence[Path]) -> None:
        self.requests = 0
        self.secret = secrets.token_urlsafe(12)
        """First part of every path: other users of this machine do not know it."""
        self._make, self._folders = make, folders
        self._report: HtmlReport | None = None
        self._why, self._stamp, self._rest_until = "", "", 0.0
        self._making = threading.Lock()
        routes = [
            Route(f"/{self.secret}/", self._send_page),
            Route(f"/{self.secret}/stamp", self._send_stamp),
            Route(f"/{self.secret}/{{folder}}/{{name}}", self._send_data),
        ]
        self._routes = Starlette(routes=routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, unless another web page, or another name of this machine, asks."""
        self.requests += 1
        request = Request(scope)
        try:
            check_access(request.headers, ())
            if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
                raise RequestRefused(403, "other web pages may not ask this server")
        except RequestRefused as refused:
            await PlainTextResponse(str(refused), 403)(scope, receive, send)
            return
        await self._routes(scope, receive, send)

    def _refresh(self) -> None:
        with self._making:
            stamp = make_stamp(self._folders)
            if stamp == self._stamp or time.monotonic() < self._rest_until:
                return
            start = time.monotonic()
            try:
                self._report = self._make(stamp)
            except ConfigError as error:
                self._why = str(error)
            self._stamp, end = stamp, time.monotonic()
            self._rest_until = end + _REST * (end - start)

    def _send_page(self, request: Request) -> Response:
        self._refresh()
        if self._report is None:
            return PlainTextResponse(f"No case yet. {self._why}", headers={**_HEADERS, "Refresh": "2"})
        return Response(self._report.html, media_type="text/html", headers=_HEADERS)

    def _send_stamp(self, request: Request) -> Response:
        self._refresh()
        return PlainTextResponse(self._stamp, headers=_HEADERS)

    def _send_data(self, request: Request) -> Response:
        report, name = self._report, request.path_params["name"]
        if report is None or request.path_params["folder"] != report.beside or name not in report.files:
            return PlainTextResponse("no such data", 404, headers=_HEADERS)
        return Response(report.files[name], media_type="text/javascript", headers=_HEADERS)


def make_stamp(folders: Sequence[Path]) -> str:
    """Sum up the records below some folders: how many there are, and the time of the newest, in ns."""
    times = [0]
    for folder in folders:
        for path in folder.rglob("*.json"):
            try:
                times.append(path.stat().st_mtime_ns)
            except OSError:  # It was replaced just now.
                times.append(0)
    return f"{len(times) - 1}-{max(times)}"


def follow_report(make: Callable[[str], HtmlReport], folders: Sequence[Path], port: int) -> None:
    """Serve the report until Ctrl-C."""
    report = FollowedReport(make, folders)
    with Server(report, "127.0.0.1", port) as server:
        announce(
            f"The report is at {server.base_url}/{report.secret}/ for browsers of this machine; Ctrl-C stops."
        )
        wait_for_interrupt()
        print_line(f"Served {server.requests} requests.")
