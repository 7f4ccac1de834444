"""The HTTP API and the dashboard as ASGI apps, to mount in another app. Needs the extra windlass[http]."""

from collections.abc import Iterable

from .app import App
from .errors import InvalidOption

try:
    from starlette.types import ASGIApp

    from ._dashboard.access import Access, Resolver
    from ._dashboard.site import Site
    from ._dashboard.view import DashboardSettings
    from ._http.app import Api
except ModuleNotFoundError as missing:
    raise InvalidOption("serving HTTP needs an extra: pip install 'windlass[http]'") from missing

__all__ = ["Access", "api", "site"]


def site(
    app: App,
    *,
    open_to_all: bool = False,
    origins: Iterable[str] = (),
    read_only: bool = False,
    resolve: Resolver | None = None,
    sign_in: str = "",
) -> ASGIApp:
    """Return the API, and the dashboard below `dashboard/`, as an ASGI app for any mount point.

        shop = FastAPI()
        shop.mount("/windlass", windlass.http.site(app))

    As `api` does, it needs keys unless it is `open_to_all`. `read_only`: the dashboard only shows.

    `resolve` tells who looks at the dashboard: a function of a Starlette request, async or plain (then it
    runs in a thread), that returns an `Access`; or None, then people sign in with a key, or at the URL
    `sign_in`, which gets the page to return to as `next`. With it nobody sees the dashboard unnamed.
    """
    served = Api(app, open_to_all=open_to_all, origins=origins)
    return Site(served, DashboardSettings(read_only=read_only), resolve=resolve, sign_in=sign_in)


def api(app: App, *, open_to_all: bool = False, origins: Iterable[str] = ()) -> ASGIApp:
    """Return the API over an app's store as an ASGI app.

    Every request needs a key unless it is `open_to_all`. Pages of `origins` may call it from a browser. It
    runs no keeper: workers, `windlass serve` and `windlass keeper` do. docs/api.md describes the operations.
    """
    return Api(app, open_to_all=open_to_all, origins=origins)
