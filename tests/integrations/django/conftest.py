"""Django's default database on SQLite and on Postgres, migrated."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

import django
import pytest
from django.core.management import call_command
from django.db import connections

from tests.django_settings import configure
from tests.servers.postgres import Postgres

configure()

from django.contrib.auth.models import Group  # noqa: E402 - once Django is configured

from tests.integrations.django.shop_tasks import used  # noqa: E402
from windlass.integrations.django import app  # noqa: E402


def on_postgres(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.path.lstrip("/"),
        "HOST": parts.hostname or "",
        "PORT": str(parts.port or ""),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "OPTIONS": {},
    }


def on_sqlite(file: Path) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(file),
        "OPTIONS": {"transaction_mode": "IMMEDIATE"} if django.VERSION >= (5, 1) else {},
    }


@pytest.fixture(params=["sqlite", "postgres"], scope="module")
def migrated(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Any]]:
    if request.param == "sqlite":
        chosen = on_sqlite(tmp_path_factory.mktemp("django") / "db.sqlite3")
    else:
        server: Postgres = request.getfixturevalue("postgres_newest")
        chosen = on_postgres(server.new_database(f"shop_{uuid4().hex[:12]}"))
    yield from using(chosen)


@pytest.fixture
def database(migrated: dict[str, Any]) -> dict[str, Any]:
    """The settings of the default database, which has all tables and no rows of earlier tests."""
    Group.objects.all().delete()
    used.clear()
    return migrated


def using(chosen: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Use another default database for a while."""
    settings = connections.settings["default"]
    before = dict(settings)
    forget_connection()
    settings.update(chosen)
    try:
        call_command("migrate", verbosity=0)
        yield settings
    finally:
        app.disconnect()
        forget_connection()
        settings.update(before)
        app.follow_database()


def forget_connection() -> None:
    """Close this thread's connection to the default database; the next one is made from its settings."""
    connections["default"].close()
    del connections["default"]
