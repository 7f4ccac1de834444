"""The templates of all pages, and how they are rendered."""

from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from .._policy.input.options import format_duration
from . import assets, formats

_FORMATS = (
    "age",
    "clock",
    "compact",
    "duration",
    "instant",
    "json_line",
    "number",
    "percent",
    "pretty_json",
    "prose",
    "segment",
    "sentence",
    "size",
    "sparkline",
    "words",
)


@cache
def environment() -> Environment:
    """Return the templates: everything is escaped, and a name that is not given is an error."""
    found = Environment(
        loader=PackageLoader(__package__),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.filters |= {name: getattr(formats, name) for name in _FORMATS}
    found.filters["exact_duration"] = format_duration
    found.globals |= {
        "icon": icon,
        "script": assets.script,
        "stylesheet": assets.stylesheet,
    }
    found.globals["parts"] = found.get_template("parts.html").module
    return found


def render(template: str, **data: Any) -> str:
    """Render a template."""
    return environment().get_template(template).render(**data)


def icon(name: str) -> Markup:
    """Return an icon as inline SVG, hidden from screen readers: a word stands beside it."""
    shape = Markup(_icons()[name])  # noqa: S704 - of this package
    return Markup(
        '<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">{}</svg>'
    ).format(shape)


@cache
def _icons() -> dict[str, str]:
    return msgspec.json.decode(assets.read_file("vendor/icons.json"), type=dict[str, str])
