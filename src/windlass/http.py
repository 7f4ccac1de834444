"""The HTTP API as an ASGI app, to be mounted into another. It takes windlass[http]. (I5)"""

from collections.abc import Iterable

from starlette.types import ASGIApp

from ._http.app import Api
from .app import App

__all__ = ["api"]


def api(app: App, *, open_to_all: bool = False, origins: Iterable[str] = ()) -> ASGIApp:
    """The API over an app's store. Every request needs a key, unless it is `open_to_all`.

    Pages of `origins` may use it from a browser. It keeps no house: that is for workers, `windlass serve` or
    `windlass keeper`. docs/api.md shows what there is.
    """
    return Api(app, open_to_all=open_to_all, origins=origins)
