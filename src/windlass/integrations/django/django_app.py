"""The app of a Django project."""

from collections.abc import Coroutine
from concurrent.futures import Future
from datetime import timedelta
from importlib import import_module
from typing import Any, TypeVar

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import autodiscover_modules

from ..._client.sync.client import SyncClient
from ..._handler.spec import HandlerSpec
from ...app import App
from ...tasktype import TaskType
from .client import TransactionClient
from .database import check_alias, store_url, with_fresh_connections
from .settings import Settings

T = TypeVar("T")


class DjangoApp(App):
    """An app whose tasks are enqueued in Django's transactions and run with fresh database connections."""

    def __init__(self, settings: Settings) -> None:
        check_alias(settings.database)
        self.settings = settings
        self._url = settings.store or store_url(settings.database)
        super().__init__(self._url, **settings.options)
        self.client = TransactionClient(
            self.store, self.builder, self.client.types, self._loop, settings.database, joins=settings.joins
        )
        self.sync_client = SyncClient(self.client, self._loop)

    def _declare(self, spec: HandlerSpec, rule: timedelta | float | str | None) -> TaskType[Any, Any, Any]:
        made = super()._declare(spec, rule)
        spec.handler = with_fresh_connections(spec.handler)  # in a worker; a direct call runs the function
        return made

    def discover(self) -> None:
        """Import the modules that declare tasks."""
        if self.settings.imports is None:
            autodiscover_modules("tasks")
        for name in self.settings.imports or ():
            try:
                import_module(name)
            except ModuleNotFoundError as error:
                if f"{name}.".startswith(f"{error.name}."):  # it is missing, not what it imports
                    message = f"WINDLASS['IMPORTS'] names the module {name!r}, which does not exist"
                    raise ImproperlyConfigured(message) from error
                raise

    def follow_database(self) -> None:
        """Use the database that Django uses now: a test runner makes one of its own, of another name."""
        if self.settings.store is None and apps.ready:
            url = store_url(self.settings.database)
            if url != self._url:
                self._url = url
                self.use_store(url)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Start a coroutine on the event loop of the app, where its store is open for blocking code."""
        return self._loop.submit(coroutine)

    def disconnect(self) -> None:
        """Close the store, blocking. It is opened again at the next use."""
        self._loop.run(self.close())
