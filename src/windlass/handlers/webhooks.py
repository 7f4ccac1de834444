"""deliver_webhook: send signed JSON to an endpoint, as Standard Webhooks 1.0.0 specifies."""

import time
from collections.abc import Mapping
from datetime import UTC, timedelta
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from .._fetch import Fetcher, FetchRefused
from .._handler.context import INJECTED, Context
from .._model.brief import Brief
from .._policy.endpoint import is_url
from ..alerts import ID_HEADER, SIGNATURE_HEADER, TIME_HEADER, checked_secret, sign
from ..errors import InvalidOption
from ..signals import Fatal
from ..tasktype import TaskType
from .endpoints import DisabledEndpoints
from .headers import HeaderName, HeaderValue, checked_headers
from .responses import noted_text, require_success
from .settings import HandlerSettings, check_kinds, errors_of

if TYPE_CHECKING:
    from ..app import App

_SCHEDULE = (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds between attempts that Standard Webhooks recommends: ten attempts over about three days."""

_JITTER = 0.2
_OURS = frozenset({ID_HEADER, TIME_HEADER, SIGNATURE_HEADER, "content-type"})
_MAX_NOTED_BODY = 4_096
_EXAMPLE = {
    "endpoint": "https://example.org/hooks/orders",
    "event": "order.shipped",
    "body": {"order": 7731, "carrier": "post"},
    "secret": "whsec_d2luZGxhc3MgaG9sZHMgaXRzIHRvbmd1ZSE=",
}


class Endpoint(Brief, Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver that payloads refer to by name, so that neither its URL nor its secret is in any task.

    `secret`: one, or several separated by spaces while receivers change to the new one; messages are signed
    with each. `headers`: sent with every message.
    """

    url: str
    secret: str | None = None
    headers: dict[str, str] = {}


class Webhooks(HandlerSettings, frozen=True):
    """Settings of deliver_webhook.

    `endpoints`: receivers by name. `any_url`: whether payloads may also have a URL. `secret`: signs messages
    to URLs whose payload has none. `timeout`: seconds for one request. `per_endpoint`: requests to one
    endpoint at once, over all workers.
    """

    table: ClassVar[str] = "webhooks"
    task: ClassVar[str] = "deliver_webhook"

    endpoints: dict[str, Endpoint] = field(default_factory=dict)
    any_url: bool = True
    secret: str | None = None
    timeout: float = 20.0
    per_endpoint: int = 10
    queue: str = "webhooks"
    max_attempts: int = len(_SCHEDULE) + 1

    def __post_init__(self) -> None:
        if self.secret is not None:
            checked_secret(self.secret)
        check_kinds("endpoints", self.endpoints, Endpoint)
        for name, endpoint in self.endpoints.items():
            with errors_of(f"endpoint {name}"):
                if is_url(name):
                    raise InvalidOption("its name must not be a URL")
                if endpoint.secret is not None:
                    checked_secret(endpoint.secret)
                checked_headers(endpoint.headers, _OURS)

    def __call__(self, app: "App") -> TaskType[..., Any, "Delivery"]:
        """Declare deliver_webhook, its limit per endpoint, and fair scheduling of its queue."""
        app.queue(self.queue, fairness="round_robin")
        declared: TaskType[..., Any, Delivery] = app.task(
            name=self.task,
            queue=self.queue,
            backoff=_backoff,
            max_attempts=self.max_attempts,
            timeout=self.timeout + 10,
            fatal=FetchRefused,
            secret=("secret", "headers"),
            example=_EXAMPLE,
        )(_Deliverer(self, app).deliver_webhook)
        app.limit("deliver_webhook-per-endpoint", type=declared, by="endpoint", running=self.per_endpoint)
        return declared


class Delivery(Struct, frozen=True, kw_only=True):
    """The result: the status of the response, and how many seconds it took."""

    status: int
    seconds: float


class _Deliverer:
    def __init__(self, settings: Webhooks, app: "App") -> None:
        self._settings = settings
        self._app = app
        self._fetcher = Fetcher(deadline=settings.timeout)
        self._disabled = DisabledEndpoints(app)

    async def deliver_webhook(
        self,
        endpoint: str,
        body: Any,
        event: str | None = None,
        headers: dict[HeaderName, HeaderValue] | None = None,
        secret: str | None = None,
        *,
        ctx: Context = INJECTED,
    ) -> Delivery:
        """Send JSON to an endpoint, signed.

        `endpoint`: the name of a configured one, or a URL. `body`: any JSON, sent as it is; with `event` it
        is the `data` of an event of that type. `headers`: more headers. `secret`: signs the message.
        """
        target = self._target(endpoint, headers, secret)
        if (disabled := await self._disabled.find(endpoint, ctx.task.tenant)) is not None:
            raise Fatal(
                f"endpoint {target.name} is disabled: it responded with 410 Gone to task {disabled.task_id}; "
                f"{_remedy(disabled.name)}"
            )
        content = _content(body, event, ctx)
        self._fetcher.allowed = self._app.allowed_networks
        started = monotonic()
        fetched = await self._fetcher.fetch(
            target.url,
            "POST",
            body=content,
            headers=_signed(target, content, ctx.task_id),
            max_bytes=_MAX_NOTED_BODY,
            cut=True,
        )
        seconds = round(monotonic() - started, 3)
        ctx.note(status=fetched.status, seconds=seconds, response=noted_text(fetched.body))
        if fetched.status == HTTPStatus.GONE:
            disabled = await self._disabled.disable(endpoint, ctx.task)
            raise Fatal(
                f"endpoint {target.name} responded with 410 Gone and is disabled; {_remedy(disabled.name)}"
            )
        require_success(fetched, f"endpoint {target.name}")
        return Delivery(status=fetched.status, seconds=seconds)

    def _target(self, endpoint: str, headers: Mapping[str, str] | None, secret: str | None) -> "_Target":
        """Return where to send and how. Raises Fatal."""
        settings = self._settings
        configured = settings.endpoints.get(endpoint)
        if configured is None and not is_url(endpoint):
            raise Fatal(f"there is no endpoint {endpoint!r}; configured are: {_names(settings.endpoints)}")
        if configured is None and not settings.any_url:
            raise Fatal(f"only configured endpoints are allowed: {_names(settings.endpoints)}")
        try:
            given = checked_headers(headers or {}, _OURS)
            ours = settings.secret if configured is None else configured.secret
            return _Target(
                name=urlsplit(endpoint).hostname or "?" if configured is None else endpoint,
                url=endpoint if configured is None else configured.url,
                secret=checked_secret(secret) if secret else ours,
                headers={**(configured.headers if configured else {}), **given},
            )
        except (InvalidOption, ValueError) as error:
            raise Fatal(str(error)) from None


class _Target(Brief, Struct, frozen=True, kw_only=True):
    name: str  # in errors: the endpoint's, or the host of a URL
    url: str
    secret: str | None
    headers: Mapping[str, str]


def _content(body: Any, event: str | None, ctx: Context) -> bytes:
    """Encode the message: the same bytes in every attempt."""
    if event is None:
        return msgspec.json.encode(body)
    at = ctx.task.created_at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return msgspec.json.encode({"type": event, "timestamp": at, "data": body})


def _signed(target: _Target, content: bytes, task_id: str) -> dict[str, str]:
    """Return the headers of a message. Its id is the task's: the same in every attempt."""
    at = int(time.time())
    named = {ID_HEADER: task_id, TIME_HEADER: str(at)}
    if target.secret is not None:
        named = sign(target.secret, content, message_id=task_id, at=at)
    return {**target.headers, **named, "Content-Type": "application/json"}


def _backoff(attempt: int, draw: float) -> timedelta:
    delay = _SCHEDULE[min(attempt, len(_SCHEDULE)) - 1]
    return timedelta(seconds=delay * (1 + _JITTER * (2 * draw - 1)))


def _remedy(id: str) -> str:
    return f"`windlass endpoints enable {id}` enables it"


def _names(endpoints: Mapping[str, Endpoint]) -> str:
    return ", ".join(sorted(endpoints)) or "none"
