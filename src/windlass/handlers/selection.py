"""Which ready-made handlers an app gets from its settings file, or all of them at once."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .._policy.input.quote import suggestion
from ..errors import InvalidOption
from .email.handler import Email
from .images.handler import Images
from .pages.handler import Pages
from .reports.handler import Reports
from .requests import Requests
from .settings import parse_settings
from .webhooks import Webhooks

if TYPE_CHECKING:
    from ..app import App

_Kind = type[Email | Images | Reports | Webhooks | Pages | Requests]
_ALL: tuple[_Kind, ...] = (Email, Images, Reports, Webhooks, Pages, Requests)

KINDS = {kind.table: kind for kind in _ALL}
"""The settings of every handler, by the name of their table."""


class Selection(Struct, frozen=True):
    """The task types that were declared, and why others were not, by name."""

    declared: tuple[str, ...]
    left_out: dict[str, str]


def include_configured(
    app: "App", tables: Mapping[str, Mapping[str, Any]], *, every: bool = False
) -> Selection:
    """Declare the handlers that have a table, or `every` one that works with what is installed and set.

    Raises InvalidOption for a wrong table; and for one whose extra is missing.
    """
    for name in tables:
        if name not in KINDS:
            hint = suggestion(name, KINDS, f"there are {', '.join(KINDS)}")
            raise InvalidOption(f"there is no handler {name!r}{hint}")
    declared, left_out = [], {}
    for name, kind in KINDS.items():
        if name not in tables and not every:
            continue
        try:
            app.include(parse_settings(kind, tables.get(name, {}), f"handlers.{name}"))
        except InvalidOption as error:
            if name in tables:
                raise
            left_out[kind.task] = str(error)
        else:
            declared.append(kind.task)
    return Selection(tuple(declared), left_out)
