"""Windlass in a Django project: settings, discovery of tasks, migrations, checks and the command."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connections
from django.test.utils import modify_settings, override_settings

from tests.integrations.django.conftest import forget_connection, on_postgres, on_sqlite, using
from tests.integrations.django.shop_tasks import ship
from windlass import Backoff
from windlass.integrations import django as integration
from windlass.integrations.django import app
from windlass.integrations.django.database import store_url
from windlass.integrations.django.django_app import DjangoApp
from windlass.integrations.django.management.commands.windlass import Command
from windlass.integrations.django.settings import Settings, read_settings


@pytest.fixture
def chosen() -> Iterator[dict[str, Any]]:
    """The settings of the default database, to be changed by the test."""
    settings = connections.settings["default"]
    before = dict(settings)
    forget_connection()
    yield settings
    forget_connection()
    settings.clear()
    settings.update(before)


class TestSettings:
    @pytest.mark.parametrize(
        ("given", "read"),
        [
            ({}, Settings()),
            ({"DATABASE": "queue"}, Settings(database="queue")),
            ({"STORE": "redis://r"}, Settings(store="redis://r", joins=False)),
            ({"STORE": "sqlite:///a", "DATABASE": "q"}, Settings(store="sqlite:///a", database="q")),
            ({"IMPORTS": ["shop.work"]}, Settings(imports=("shop.work",))),
            ({"SECRET": ["card"], "BACKOFF": Backoff(base=2)},
             Settings(options={"secret": ["card"], "backoff": Backoff(base=2)})),
        ],
    )  # fmt: skip
    def test_they_are_read(self, given: dict[str, Any], read: Settings) -> None:
        with override_settings(WINDLASS=given):
            assert read_settings() == read

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"STROE": "x"}, "did you mean 'STORE'"),
            ({"store": "x"}, "did you mean 'STORE'"),
            ({"IMPORTS": "shop.tasks"}, "must be a list"),
            ("redis://r", "must be a dictionary"),
            ({"STORE": 5}, r"WINDLASS\['STORE'\] must be a URL"),
        ],
    )
    def test_a_wrong_one_is_refused(self, given: Any, message: str) -> None:
        with override_settings(WINDLASS=given), pytest.raises(ImproperlyConfigured, match=message):
            read_settings()

    def test_an_unknown_database_is_refused(self) -> None:
        with pytest.raises(ImproperlyConfigured, match=r"is 'defualt', which .* did you mean 'default'\?"):
            DjangoApp(Settings(database="defualt"))

    @pytest.mark.parametrize("missing", ["shop.work", "tests.integrations.django.works"])
    def test_a_missing_module_is_named(self, missing: str) -> None:
        with pytest.raises(ImproperlyConfigured, match=rf"IMPORTS.* names the module '{missing}', which"):
            DjangoApp(Settings(imports=(missing,))).discover()

    def test_a_project_without_the_app_is_refused(self) -> None:
        with (
            modify_settings(INSTALLED_APPS={"remove": "windlass.integrations.django"}),
            pytest.raises(ImproperlyConfigured, match=r"add 'windlass\S+' to INSTALLED_APPS"),
        ):
            integration.__getattr__("app")


class TestStoreUrl:
    @pytest.mark.parametrize(
        ("settings", "url"),
        [
            ({"NAME": "shop"}, "postgresql:///shop"),
            ({"NAME": "shop", "HOST": "db", "PORT": 5433, "USER": "a"}, "postgresql://a@db:5433/shop"),
            ({"NAME": "s", "HOST": "::1", "USER": "a", "PASSWORD": "p/@:"}, "postgresql://a:p%2F%40%3A@[::1]/s"),
            ({"NAME": "s", "HOST": "/run/pg", "PORT": "5433"}, "postgresql:///s?host=%2Frun%2Fpg&port=5433"),
            ({"NAME": "s", "HOST": "db", "OPTIONS": {"sslmode": "require", "pool": True}},
             "postgresql://db/s?sslmode=require"),
        ],
    )  # fmt: skip
    def test_on_postgres(self, chosen: dict[str, Any], settings: dict[str, Any], url: str) -> None:
        chosen.update(on_postgres("postgresql:///") | settings)

        assert store_url("default") == url

    def test_on_sqlite(self, chosen: dict[str, Any], tmp_path: Path) -> None:
        chosen.update(NAME=tmp_path / "db.sqlite3")

        assert store_url("default") == f"sqlite:///{tmp_path}/db.sqlite3"

    def test_in_memory(self, chosen: dict[str, Any]) -> None:
        chosen.update(NAME="file:memorydb_default?mode=memory&cache=shared")

        assert store_url("default") == "memory://"

    def test_of_another_database_there_is_none(self, chosen: dict[str, Any]) -> None:
        chosen.update(ENGINE="django.db.backends.dummy")

        with pytest.raises(ImproperlyConfigured, match=r"'default' is unknown; set WINDLASS = \{'STORE'"):
            store_url("default")


def test_tasks_are_discovered() -> None:
    assert ship.name in {spec.name for spec in app.types.values()}


def test_migrate_migrates_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "db.sqlite3"
    for _ in using(on_sqlite(file)):
        with closing(sqlite3.connect(file)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        call_command("migrate", verbosity=1)

    assert {"auth_group", "windlass_task"} <= tables, tables
    assert "Migrated windlass" not in capsys.readouterr().out  # the second time there was nothing to do


class TestChecks:
    def test_sqlite_without_immediate_transactions(self, chosen: dict[str, Any]) -> None:
        chosen.update(OPTIONS={})
        assert "windlass.W001" in {message.id for message in run_checks()}

        chosen.update(OPTIONS={"transaction_mode": "IMMEDIATE"})
        assert not [message for message in run_checks() if message.id.startswith("windlass")]

    def test_a_pool_without_health_checks(self, chosen: dict[str, Any]) -> None:
        chosen.update(on_postgres("postgresql:///shop") | {"OPTIONS": {"pool": True}})
        assert "windlass.W002" in {message.id for message in run_checks()}

        chosen.update(CONN_HEALTH_CHECKS=True)
        assert not [message for message in run_checks() if message.id.startswith("windlass")]

    def test_access_that_cannot_be_imported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(app, "settings", Settings(access="shop.nowhere"))

        assert "windlass.E001" in {message.id for message in run_checks()}


class TestCommand:
    def test_options_of_django_are_not_passed_on(
        self, database: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        arguments = ["--settings=prod", "tasks", "list", "--pythonpath", ".", "--json"]

        with pytest.raises(SystemExit) as end:
            Command().run_from_argv(["manage.py", "windlass", *arguments])

        assert end.value.code in (0, None), capsys.readouterr().err

    def test_it_runs_commands_on_the_store(
        self, database: dict[str, Any], capsys: pytest.CaptureFixture[str]
    ) -> None:
        handle = ship.enqueue(order="A1")

        call_command("windlass", "tasks", "show", handle.id, "--json")

        assert handle.id in capsys.readouterr().out

    def test_a_failure_is_an_error(self, database: dict[str, Any]) -> None:
        with pytest.raises(CommandError, match="exit code 2"):
            call_command("windlass", "no-such-command")
