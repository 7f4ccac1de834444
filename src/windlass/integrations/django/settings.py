"""The setting `WINDLASS` of a Django project."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from msgspec import Struct

from ..._model.brief import Brief
from ..._policy.input.quote import suggestion
from ...app import App

DEFAULT_DATABASE = "default"

_APP_OPTIONS = tuple(name for name in signature(App).parameters if name != "store")
_OWN = ("STORE", "DATABASE", "IMPORTS", "ACCESS")
KEYS = (*_OWN, *(name.upper() for name in _APP_OPTIONS))


class Settings(Brief, Struct, frozen=True, kw_only=True):
    """What `WINDLASS` says.

    `store`: a URL; None: the store is in `database`. `database`: the alias of the Django database whose
    transactions tasks are enqueued in. `joins`: whether the store is in this database; if not, tasks are
    enqueued after its transactions commit. `imports`: the modules that declare tasks; None: `tasks` of every
    installed app. `access`: the path of a function that tells who may see the dashboard. `options`: of the
    app.
    """

    store: str | None = None
    database: str = DEFAULT_DATABASE
    joins: bool = True
    imports: tuple[str, ...] | None = None
    access: str | None = None
    options: Mapping[str, Any] = {}


def read_settings() -> Settings:
    """Read the setting `WINDLASS`; raises ImproperlyConfigured."""
    given = getattr(django_settings, "WINDLASS", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured("WINDLASS must be a dictionary, such as {'STORE': 'redis://localhost/0'}")
    for key in given:
        if key not in KEYS:
            hint = suggestion(str(key).upper(), KEYS, f"the settings are {', '.join(KEYS)}")
            raise ImproperlyConfigured(f"WINDLASS has no setting {key!r}{hint}")
    if not isinstance(store := given.get("STORE"), str | None):
        raise ImproperlyConfigured(f"WINDLASS['STORE'] must be a URL, such as 'redis://r/0', got {store!r}")
    imports = given.get("IMPORTS")
    if isinstance(imports, str):
        raise ImproperlyConfigured("WINDLASS['IMPORTS'] must be a list of modules, such as ['shop.tasks']")
    return Settings(
        store=store,
        database=given.get("DATABASE", DEFAULT_DATABASE),
        joins="STORE" not in given or "DATABASE" in given,
        imports=None if imports is None else tuple(imports),
        access=given.get("ACCESS"),
        options={name: given[name.upper()] for name in _APP_OPTIONS if name.upper() in given},
    )
