"""The Django app: finds tasks, follows the database of test runners, and migrates the store."""

from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import register
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate

from ..._policy.input.quote import counted
from ..._store.protocol import Phase
from ..._worker.processes import child_imports
from . import checks

_CHILD_SETUP = "windlass.integrations.django.child_setup"


class WindlassConfig(AppConfig):
    """windlass in a Django project."""

    name = "windlass.integrations.django"
    label = "windlass"
    verbose_name = "windlass"

    def ready(self) -> None:
        """Import the tasks of the project."""
        from . import app  # noqa: PLC0415 - it needs the settings

        register(checks.check_access)
        register(checks.check_databases)
        connection_created.connect(_follow, dispatch_uid="windlass")
        post_migrate.connect(_migrate, sender=self, dispatch_uid="windlass")
        if settings.SETTINGS_MODULE and _CHILD_SETUP not in child_imports:  # else a child cannot know them
            child_imports.append(_CHILD_SETUP)
        app.discover()


def _follow(connection: Any, **_: Any) -> None:
    """Use the database of this connection, if it is the one that the store is in."""
    from . import app  # noqa: PLC0415

    if connection.alias == app.settings.database:
        app.follow_database()


def _migrate(using: str, verbosity: int, **_: Any) -> None:
    """After `manage.py migrate`: migrate the store in this database, by the steps that old code tolerates."""
    from ..._cli.upkeep.migrate import target_of  # noqa: PLC0415 - slow to import
    from . import app  # noqa: PLC0415

    if not app.settings.joins or using != app.settings.database:
        return
    app.follow_database()
    operator = app.sync_operator
    try:
        steps = operator.migrations()
        taken = operator.migrate(target_of(steps, Phase.BEFORE)) if steps else ()  # in memory there are none
    finally:
        app.disconnect()  # a test runner drops its database, which must have no connections
    if taken and verbosity:
        print(f"  Migrated windlass in {app.store_name}: {counted(len(taken), 'step')}")  # noqa: T201
