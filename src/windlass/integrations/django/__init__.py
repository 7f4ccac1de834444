"""Django: tasks in Django's database and transactions, run by `manage.py windlass worker`.

    INSTALLED_APPS = [..., "windlass.integrations.django"]  # settings.py

    from windlass.integrations.django import app  # shop/tasks.py

    @app.task
    def ship(order_id: int) -> None: ...

`app` is made at first use, from the setting `WINDLASS`. See docs/django.md.
"""

from threading import RLock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .django_app import DjangoApp

    app: DjangoApp

__all__ = ["app"]

_lock = RLock()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _lock:
        _set_up()
        if "app" not in globals():
            from .django_app import DjangoApp  # noqa: PLC0415 - Django imports this module before it is set up
            from .settings import read_settings  # noqa: PLC0415

            globals()["app"] = DjangoApp(read_settings())
    return globals()["app"]


def _set_up() -> None:
    """Set up Django, unless it is or is being: manage.py does not start the processes of --workers.

    Raises ImproperlyConfigured if the project has not installed this app.
    """
    import django  # noqa: PLC0415
    from django.apps import apps  # noqa: PLC0415

    if not apps.ready and not apps.loading:
        django.setup()
    if apps.apps_ready and not apps.is_installed(__name__):
        from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415

        raise ImproperlyConfigured(f"add {__name__!r} to INSTALLED_APPS, or no worker finds the tasks")
