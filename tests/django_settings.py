"""Django in the process of the tests: it can be configured once, so all of them share these settings."""

from pathlib import Path
from tempfile import mkdtemp

import django
from django.conf import settings

_TASKS = "tests.integrations.django.shop_tasks"
BACKEND = "windlass.integrations.django.backend.WindlassBackend"


def configure() -> None:
    """Configure Django, unless it is."""
    if not settings.configured:
        file = Path(mkdtemp(prefix="windlass-django-")) / "db.sqlite3"
        settings.configure(
            USE_TZ=False,
            TIME_ZONE="America/New_York",
            SECRET_KEY="s" * 50,
            INSTALLED_APPS=[
                "django.contrib.contenttypes",
                "django.contrib.auth",
                "windlass.integrations.django",
            ],
            DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(file)}},
            DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
            WINDLASS={"IMPORTS": [_TASKS]},
            TASKS={
                "default": {"BACKEND": BACKEND},
                "stubborn": {
                    "BACKEND": BACKEND,
                    "OPTIONS": {"max_attempts": 2, "backoff": lambda *_: 0, "fatal": (PermissionError,)},
                },
                "once": {"BACKEND": BACKEND, "OPTIONS": {"max_attempts": 1}},
                "brief": {"BACKEND": BACKEND, "OPTIONS": {"max_attempts": 1, "timeout": 0.2}},
            },
        )
        django.setup()
