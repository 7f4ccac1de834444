"""The site: the API, and the dashboard below `/dashboard`; a browser that asks for `/` is led there."""

from collections.abc import Callable

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from .._http.app import Api
from .._http.web.router import path_within
from .access import Resolver
from .app import PREFIX, Dashboard
from .view import DashboardSettings


class Site:
    """An API with its dashboard."""

    def __init__(
        self,
        api: Api,
        settings: DashboardSettings | None = None,
        *,
        resolve: Resolver | None = None,
        sign_in: str = "",
    ) -> None:
        self._api = api
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


def site_with(settings: DashboardSettings) -> Callable[[Api], Site]:
    """Return what makes the site of an API, with these settings."""
    return lambda api: Site(api, settings)


def _accepts_html(connection: Connection) -> bool:
    return any(name == b"accept" and b"text/html" in value for name, value in connection["headers"])
