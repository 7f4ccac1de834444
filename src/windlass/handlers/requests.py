"""http_request: send any HTTP request, with values filled in, and return the response."""

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Struct

from .._fetch import Fetched, Fetcher, FetchRefused
from .._handler.context import INJECTED, Context
from .._model.brief import Brief
from .._policy.backoff import Backoff
from .._policy.input.payload import MAX_BYTES
from ..errors import InvalidOption
from ..signals import Fatal
from ..tasktype import TaskType
from .headers import HeaderName, HeaderValue, checked_headers
from .responses import noted_text, require_success
from .settings import HandlerSettings

if TYPE_CHECKING:
    from ..app import App

Method = Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

_BACKOFF = Backoff(base=5, factor=3, cap=3600, max_attempts=8)
_PLACE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)\s*\}\}")
_KEPT = ("content-type", "etag", "last-modified", "location")  # headers in the result
_EXAMPLE = {
    "url": "https://api.example.org/orders/{{ order }}/notes",
    "method": "POST",
    "body": {"text": "shipped by {{ carrier }}"},
    "values": {"order": 7731, "carrier": "post"},
}


class Requests(HandlerSettings, frozen=True):
    """Settings of http_request.

    `hosts`: patterns of hosts that requests may go to, as *.example.org. `max_bytes`: of a response.
    `timeout`: seconds for one request.
    """

    table: ClassVar[str] = "requests"
    task: ClassVar[str] = "http_request"

    hosts: tuple[str, ...] = ("*",)
    max_bytes: int = 1 << 20
    timeout: float = 30.0
    queue: str = "requests"
    max_attempts: int = _BACKOFF.max_attempts

    def __call__(self, app: "App") -> TaskType[..., Any, "Response"]:
        """Declare http_request."""
        declared: TaskType[..., Any, Response] = app.task(
            name=self.task,
            queue=self.queue,
            backoff=_BACKOFF,
            max_attempts=self.max_attempts,
            timeout=self.timeout + 10,
            fatal=FetchRefused,
            secret=("headers",),
            example=_EXAMPLE,
        )(_Requester(self, app).http_request)
        return declared


class Response(Brief, Struct, frozen=True, kw_only=True):
    """The result. `body` is JSON if the response was, else text."""

    status: int
    headers: dict[str, str]
    body: Any


class _Requester:
    def __init__(self, settings: Requests, app: "App") -> None:
        self._settings = settings
        self._app = app
        self._fetcher = Fetcher(deadline=settings.timeout)

    async def http_request(
        self,
        url: str,
        method: Method = "GET",
        headers: dict[HeaderName, HeaderValue] | None = None,
        body: Any = None,
        text: str | None = None,
        values: Any = None,
        *,
        ctx: Context = INJECTED,
    ) -> Response:
        """Send an HTTP request and return the response.

        `body`: sent as JSON; or `text`, sent as it is. `values`: what {{ name }} and {{ name.field }} in the
        URL, the body and the text stand for; filled in, they have at most 1 MiB in all.
        """
        try:
            given = checked_headers(headers or {})
            filling = Filling(values)
            place = filling.fill(url, quoted=True)
            content, kind = _content(filling.fill(body), filling.fill(text))
            host = urlsplit(place).hostname or ""
        except (InvalidOption, ValueError) as error:
            raise Fatal(str(error)) from None
        if not any(fnmatchcase(host.lower(), pattern.lower()) for pattern in self._settings.hosts):
            raise Fatal(f"requests to {host[:100]!r} are not allowed: it is not in `hosts`")
        ours = {"Content-Type": kind, "Idempotency-Key": ctx.idempotency_key()}
        given_names = {name.lower() for name in given}
        added = {name: one for name, one in ours.items() if one and name.lower() not in given_names}
        self._fetcher.allowed = self._app.allowed_networks
        fetched = await self._fetcher.fetch(
            place,
            method,
            body=content,
            headers={**given, **added},
            max_bytes=self._settings.max_bytes,
        )
        ctx.note(status=fetched.status, response=noted_text(fetched.body, 2_000))
        require_success(fetched, host)
        return _response(fetched)


class Filling:
    """Fills values into templates: in all not more than a payload may be, however often each is named."""

    def __init__(self, values: Any) -> None:
        self._values = values
        self._left = MAX_BYTES

    def fill(self, template: Any, *, quoted: bool = False) -> Any:
        """Replace each {{ name }} in the texts of a JSON value.

        A text that is nothing but one name becomes the value itself, whatever its type. `quoted`: for URLs,
        in which what values have may not end a part. Raises InvalidOption if a value is missing, or as soon
        as they are too large.
        """
        match template:
            case str():
                whole = _PLACE.fullmatch(template)
                if whole and not quoted:
                    value = self._value(whole[1])
                    self._take(_text(value, quoted=False))
                    return value
                return _PLACE.sub(
                    lambda found: self._take(_text(self._value(found[1]), quoted=quoted)), template
                )
            case dict():
                return {name: self.fill(one) for name, one in template.items()}
            case list():
                return [self.fill(one) for one in template]
            case _:
                return template

    def _take(self, text: str) -> str:
        self._left -= len(text)
        if self._left < 0:
            raise InvalidOption(f"the values that are filled in have more than {MAX_BYTES:,} characters")
        return text

    def _value(self, path: str) -> Any:
        found = self._values
        for part in path.split("."):
            if isinstance(found, dict) and part in found:
                found = found[part]
            elif isinstance(found, list) and part.isdigit() and int(part) < len(found):
                found = found[int(part)]
            else:
                raise InvalidOption(f"there is no value for {{{{ {path} }}}}")
        return found


def _text(value: Any, *, quoted: bool) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return quote(text, safe="") if quoted else text


def _content(body: Any, text: Any) -> tuple[bytes | None, str | None]:
    if body is not None and text is not None:
        raise InvalidOption("give `body` or `text`, not both")
    if text is not None:
        return _text(text, quoted=False).encode(), "text/plain; charset=utf-8"
    return (None, None) if body is None else (msgspec.json.encode(body), "application/json")


def _response(fetched: Fetched) -> Response:
    kind = fetched.headers.get("content-type", "").partition(";")[0].strip().lower()
    body: Any = fetched.body.decode("utf-8", "replace").replace("\0", "\ufffd")
    if kind == "application/json" or kind.endswith("+json"):
        try:
            body = msgspec.json.decode(fetched.body)
        except ValueError:
            raise Fatal("the response says that it is JSON, and is not") from None
        except RecursionError:
            raise Fatal("the response is JSON that is nested too deeply") from None
    headers = {name: fetched.headers[name] for name in _KEPT if name in fetched.headers}
    return Response(status=fetched.status, headers=headers, body=body)
