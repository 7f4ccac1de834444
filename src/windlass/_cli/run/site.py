"""The server of a command: the API, and the dashboard beside it. Imported when they run."""

from typing import Any, TypedDict

from ..._dashboard.access import Proxies
from ..._dashboard.site import site_with
from ..._dashboard.view import DashboardSettings
from ..._http.server.run import Server, ServerLimits, new_server
from ...app import App


class ServerOptions(TypedDict):
    """The options of a server. `reads_only`: the API refuses what changes something; the dashboard acts."""

    host: str
    insecure: bool
    origins: tuple[str, ...]
    limits: ServerLimits
    dashboard: DashboardSettings | None
    reads_only: bool


def server_options(
    host: str,
    *,
    insecure: bool,
    options: dict[str, Any],
    origins: tuple[str, ...] = (),
    reads_only: bool = False,
) -> ServerOptions:
    """Return the options of a server, from those of a command. Raises InvalidOption."""
    wants_dashboard = not options.pop("no_dashboard", False)
    settings = DashboardSettings(**{name: options.pop(name) for name in _DASHBOARD})
    Proxies(settings)  # checks them
    return {
        "host": host,
        "insecure": insecure,
        "origins": origins,
        "dashboard": settings if wants_dashboard else None,
        "limits": ServerLimits(**options),
        "reads_only": reads_only,
    }


_DASHBOARD = ("read_only", "trace_url", "user_header", "trusted_proxies", "proxy_role")


async def new_site(app: App, options: ServerOptions, **more: Any) -> Server:
    """Return a server of the API and the dashboard; raises InvalidOption as `new_server` does."""
    settings: dict[str, Any] = {**options}
    dashboard, reads_only = settings.pop("dashboard"), settings.pop("reads_only")
    site = None if dashboard is None else site_with(dashboard, reads_only=reads_only)
    return await new_server(app, site=site, **settings, **more)
