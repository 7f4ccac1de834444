"""What every operation works with: the app, and what all requests share."""

import asyncio

from .._store import Store
from ..app import App
from .watching import Watch


class Service:
    """An app that is served."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.watch = Watch(app.store)
        self.closing = asyncio.Event()  # the server stops: who waits is answered now

    @property
    def store(self) -> Store:
        """The store behind it."""
        return self.app.store
