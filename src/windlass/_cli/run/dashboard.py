"""The dashboard beside the API, for the commands that serve it. Imported when they run."""

from typing import Any, TypedDict

from ..._dashboard.site import site_with
from ..._dashboard.view import DashboardSettings
from ..._http.server.run import Server, ServerLimits, new_server
from ...app import App


class ServerOptions(TypedDict):
    """The options of a server."""

    host: str
    insecure: bool
    origins: tuple[str, ...]
    limits: ServerLimits
    dashboard: DashboardSettings


def dashboard_settings(*, read_only: bool) -> DashboardSettings:
    """Return the settings that the options of a command give."""
    return DashboardSettings(read_only=read_only)


async def new_site(app: App, options: ServerOptions, **more: Any) -> Server:
    """Return a server of the API and the dashboard; raises InvalidOption as `new_server` does."""
    settings: dict[str, Any] = {**options}
    return await new_server(app, site=site_with(settings.pop("dashboard")), **settings, **more)
