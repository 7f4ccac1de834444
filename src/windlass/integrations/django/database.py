"""The Django database that the store is in: its URL, its open transaction, and connections of handlers."""

from collections.abc import Callable
from functools import wraps
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from asgiref.sync import SyncToAsync, ThreadSensitiveContext, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from ..._policy.input.quote import suggestion

_POSTGRES_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "passfile", "service")


def check_alias(alias: str) -> None:
    """Raise ImproperlyConfigured if Django has no database of this alias."""
    if alias not in (known := [*connections]):
        hint = suggestion(alias, known, f"it has {', '.join(known)}")
        raise ImproperlyConfigured(f"WINDLASS['DATABASE'] is {alias!r}, which DATABASES does not have{hint}")


def store_url(alias: str) -> str:
    """Return the URL of the store in this Django database; raises ImproperlyConfigured if there is none.

    A database in memory, as Django makes for tests on SQLite, has its store in memory, too.
    """
    connection = connections[alias]
    match connection.vendor:
        case "postgresql":
            return _postgres_url(connection.settings_dict)
        case "sqlite" if connection.is_in_memory_db():
            return "memory://"
        case "sqlite":
            return f"sqlite:///{Path(connection.settings_dict['NAME']).absolute()}"
        case vendor:
            raise ImproperlyConfigured(
                f"windlass keeps tasks in Postgres, SQLite or Redis, and the database {alias!r} is {vendor}; "
                f"set WINDLASS = {{'STORE': 'redis://…'}} or another URL"
            )


def _postgres_url(settings: dict[str, Any]) -> str:
    host, port, user = (str(settings.get(key) or "") for key in ("HOST", "PORT", "USER"))
    password = str(settings.get("PASSWORD") or "")
    given = settings.get("OPTIONS") or {}
    options = {name: str(given[name]) for name in _POSTGRES_OPTIONS if name in given}
    if host.startswith("/"):
        options["host"], host = host, ""
        if port:
            options["port"], port = port, ""
    account = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "")
    address = f"[{host}]" if ":" in host else host
    place = f"{account}@{address}" if account else address
    name = quote(str(settings.get("NAME") or ""), safe="")
    return f"postgresql://{place}{f':{port}' if port else ''}/{name}" + (
        f"?{urlencode(options)}" if options else ""
    )


def open_transaction(alias: str) -> Any:
    """Return this thread's Django connection if a transaction is open on it, else None."""
    for connection in connections.all(initialized_only=True):
        if connection.alias == alias and connection.connection is not None:
            is_open = connection.in_atomic_block or not connection.autocommit
            return connection if is_open else None
    return None


def with_fresh_connections(handler: Callable[..., Any]) -> Callable[..., Any]:
    """Let a handler run as a request does: with usable connections, which are closed or kept as configured.

    An async handler gets a thread of its own for the ORM, as a request does under ASGI.
    """
    if iscoroutinefunction(handler):

        @wraps(handler)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            async with ThreadSensitiveContext() as context:
                try:
                    return await handler(*args, **kwargs)
                finally:
                    if context in SyncToAsync.context_to_thread_executor:  # it has used the ORM
                        await sync_to_async(connections.close_all)()

        return run_async

    @wraps(handler)
    def run(*args: Any, **kwargs: Any) -> Any:
        _close_old_connections()
        for connection in connections.all(initialized_only=True):
            # Whatever CONN_HEALTH_CHECKS says: a worker that was idle while the server restarted must not
            # fail a task.
            connection.health_check_enabled = True
        try:
            return handler(*args, **kwargs)
        finally:
            _close_old_connections()

    return run


def _close_old_connections() -> None:
    """Close the connections of this thread that are broken or too old, as Django does around a request."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:  # of a test, around the handler
            connection.close_if_unusable_or_obsolete()
