"""The site: the API, and the dashboard below `/dashboard`; a browser that asks for `/` is led there."""

from collections.abc import Callable

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from .._http.app import Api
from .._http.web.problems import SAFE_HEADERS, Problem, problem_response
from .._http.web.router import path_within
from .access import Resolver
from .app import PREFIX, Dashboard
from .view import DashboardSettings


class Site:
    """An API with its dashboard. `reads_only`: the API refuses what changes something."""

    def __init__(
        self,
        api: Api,
        settings: DashboardSettings | None = None,
        *,
        resolve: Resolver | None = None,
        sign_in: str = "",
        reads_only: bool = False,
    ) -> None:
        self._api: ASGIApp = _reads_only(api) if reads_only else api
        self._dashboard = Dashboard(api.service, settings, resolve=resolve, sign_in=sign_in)

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Respond by the dashboard or by the API."""
        await self._app_for(connection)(connection, receive, send)

    def _app_for(self, connection: Connection) -> ASGIApp:
        if connection["type"] != "http":
            return self._api
        path = path_within(connection)
        if path == f"/{PREFIX}" or path.startswith(f"/{PREFIX}/"):
            return self._dashboard
        if path in ("", "/") and _accepts_html(connection):
            return RedirectResponse(f"{PREFIX}/", 307)
        return self._api


def site_with(settings: DashboardSettings, *, reads_only: bool = False) -> Callable[[Api], Site]:
    """Return what makes the site of an API, with these settings."""
    return lambda api: Site(api, settings, reads_only=reads_only)


def _reads_only(api: Api) -> ASGIApp:
    allowed = {"Allow": "GET, HEAD"}
    problem = Problem(
        "method-not-allowed",
        "this server is for the dashboard: its API only reads; programs and workers need `windlass serve`",
        headers=allowed,
    )

    async def respond(connection: Connection, receive: Receive, send: Send) -> None:
        if connection["type"] == "http" and connection["method"] not in ("GET", "HEAD"):
            await problem_response(problem, SAFE_HEADERS)(connection, receive, send)
        else:
            await api(connection, receive, send)

    return respond


def _accepts_html(connection: Connection) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in connection["headers"])
