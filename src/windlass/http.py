"""The HTTP API and the dashboard as ASGI apps, to mount in another app. Needs the extra windlass[http]."""

from collections.abc import Iterable

from starlette.types import ASGIApp

from ._dashboard.site import Site
from ._dashboard.view import DashboardSettings
from ._http.app import Api
from .app import App

__all__ = ["api", "site"]


def site(
    app: App, *, open_to_all: bool = False, origins: Iterable[str] = (), read_only: bool = False
) -> ASGIApp:
    """Return the API, and the dashboard below `dashboard/`, as an ASGI app for any mount point.

        shop = FastAPI()
        shop.mount("/windlass", windlass.http.site(app))

    As `api` does, it needs keys unless it is `open_to_all`. `read_only`: the dashboard only shows.
    """
    served = Api(app, open_to_all=open_to_all, origins=origins)
    return Site(served, DashboardSettings(read_only=read_only))


def api(app: App, *, open_to_all: bool = False, origins: Iterable[str] = ()) -> ASGIApp:
    """Return the API over an app's store as an ASGI app.

    Every request needs a key unless it is `open_to_all`. Pages of `origins` may call it from a browser. It
    runs no keeper: workers, `windlass serve` and `windlass keeper` do. docs/api.md describes the operations.
    """
    return Api(app, open_to_all=open_to_all, origins=origins)
