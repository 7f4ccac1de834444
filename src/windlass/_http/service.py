"""What every operation works with: the app, and what all requests share."""

import asyncio
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .._observe.overview import OverviewCache
from .._store.protocol import Store
from ..app import App
from .long_poll import Watch

if TYPE_CHECKING:
    from .operation import Operation

_LIVE = timedelta(seconds=2)
"""How old what is shown may be. It is looked up once, however many watch."""


class Service:
    """An app that is served."""

    def __init__(self, app: App, operations: "tuple[Operation, ...]" = ()) -> None:
        self.app = app
        self.operations = operations  # all that can be asked, for who asks what that is
        self.watch = Watch(app.store)
        self.overviews = OverviewCache(app.store, max_age=_LIVE)
        self.metrics = app.metrics() if find_spec("prometheus_client") else None
        self.closing = asyncio.Event()  # the server stops: who waits is answered now

    @property
    def store(self) -> Store:
        """The store behind it."""
        return self.app.store
