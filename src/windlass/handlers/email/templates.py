"""Templates of messages: files in a directory, rendered with Jinja2 in a sandbox."""

import re
from pathlib import Path
from typing import Any

from msgspec import Struct

from ..._model.brief import Brief
from ...errors import InvalidOption
from ..settings import required

_NAME = re.compile(r"[A-Za-z0-9_-]{1,100}")


class Rendered(Brief, Struct, frozen=True):
    """What the files of a template give; None where there is no file."""

    subject: str | None
    text: str | None
    html: str | None


class Templates:
    """The templates in a directory: NAME.subject.txt, NAME.txt and NAME.html, of which HTML is escaped."""

    def __init__(self, directory: str) -> None:
        if not Path(directory).is_dir():
            raise InvalidOption(f"templates: there is no directory {directory}")
        jinja = required("jinja2", "email", "a template of send_email")
        sandbox = required("jinja2.sandbox", "email", "a template of send_email")
        self._failure: type[Exception] = jinja.TemplateError
        self._missing: type[Exception] = jinja.TemplateNotFound
        self._environment = sandbox.ImmutableSandboxedEnvironment(
            loader=jinja.FileSystemLoader(directory),
            autoescape=lambda name: name is not None and name.endswith(".html"),
            undefined=jinja.StrictUndefined,
        )

    def render(self, name: str, values: dict[str, Any]) -> Rendered:
        """Render a template's files. Raises InvalidOption if it does not exist or a value is missing."""
        if not _NAME.fullmatch(name):
            raise InvalidOption(f"{name[:100]!r} is not the name of a template")
        subject = self._part(f"{name}.subject.txt", values)
        text, html = self._part(f"{name}.txt", values), self._part(f"{name}.html", values)
        if text is None and html is None:
            raise InvalidOption(f"there is no template {name!r}: neither {name}.txt nor {name}.html")
        return Rendered(None if subject is None else " ".join(subject.split()), text, html)

    def _part(self, file: str, values: dict[str, Any]) -> str | None:
        try:
            return str(self._environment.get_template(file).render(values))
        except self._missing as missing:
            name = getattr(missing, "name", None)
            if name != file:  # one that it includes
                raise InvalidOption(f"template {file} includes {name}, which does not exist") from None
            return None
        except (self._failure, TypeError, ValueError, ArithmeticError, OverflowError) as error:
            raise InvalidOption(f"template {file} failed: {error}") from None
