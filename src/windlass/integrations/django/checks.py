"""System checks: `manage.py check` reports settings under which tasks or the dashboard fail needlessly."""

from typing import Any

from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 - Django's name
from django.db import connections
from django.utils.module_loading import import_string


def check_access(**_: Any) -> list[CheckMessage]:
    """Report a `WINDLASS["ACCESS"]` that cannot be imported: the dashboard would fail for every user."""
    from . import app  # noqa: PLC0415 - it needs the settings

    try:
        if app.settings.access is not None:
            import_string(app.settings.access)
    except ImportError as error:
        message = f"WINDLASS['ACCESS'] cannot be imported: {error}"
        return [Error(message, hint="name a function, such as 'shop.access.access'", id="windlass.E001")]
    return []


def check_databases(**_: Any) -> list[CheckMessage]:
    """Warn of settings of the store's database."""
    from . import app  # noqa: PLC0415 - it needs the settings

    if not app.settings.joins:
        return []
    connection = connections[app.settings.database]
    options, found = connection.settings_dict.get("OPTIONS") or {}, []
    if connection.vendor == "sqlite" and options.get("transaction_mode") != "IMMEDIATE":
        found.append(
            Warning(
                "transactions on SQLite fail with 'database is locked' when they read first and a worker "
                "writes meanwhile",
                hint="add 'OPTIONS': {'transaction_mode': 'IMMEDIATE'} to the database (Django 5.1 or newer)",
                id="windlass.W001",
            )
        )
    if options.get("pool") and not connection.settings_dict.get("CONN_HEALTH_CHECKS"):
        found.append(
            Warning(
                "after a restart of the database, its connection pool hands out broken connections",
                hint="add 'CONN_HEALTH_CHECKS': True to the database",
                id="windlass.W002",
            )
        )
    return found
