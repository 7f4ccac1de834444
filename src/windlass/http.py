"""The HTTP API as an ASGI app, to mount in another. Needs the extra windlass[http]."""

from collections.abc import Iterable

from starlette.types import ASGIApp

from ._http.app import Api
from .app import App

__all__ = ["api"]


def api(app: App, *, open_to_all: bool = False, origins: Iterable[str] = ()) -> ASGIApp:
    """Return the API over an app's store as an ASGI app.

    Every request needs a key unless it is `open_to_all`. Pages of `origins` may call it from a browser. It
    runs no keeper: workers, `windlass serve` and `windlass keeper` do. docs/api.md describes the operations.
    """
    return Api(app, open_to_all=open_to_all, origins=origins)
