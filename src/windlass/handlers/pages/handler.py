"""The task type scrape_url and its settings."""

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult, urljoin, urlsplit

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ..._fetch import REDIRECTS, Fetched, Fetcher, FetchRefused
from ..._handler.context import INJECTED, Context
from ..._model.brief import Brief
from ..._model.limit import MAX_RATE
from ..._policy.backoff import Backoff
from ...signals import Fatal, Snooze
from ...tasktype import TaskType
from ..headers import HeaderValue
from ..responses import require_success
from ..sandbox import Bounds, SandboxError, run_in_sandbox
from ..settings import HandlerSettings, required
from .extract import FUNCTION, Part, Selector, Wanted
from .robots import MAX_BYTES, Robots, parse_robots

if TYPE_CHECKING:
    from ...app import App

_BACKOFF = Backoff(base=10, factor=3, cap=3600, max_attempts=6)
_TYPES = ("text/html", "application/xhtml+xml")
_MAX_REDIRECTS = 5
_MAX_URL = 8_000  # characters: robots.txt may have 50,000 rules to match with each
_ROBOTS_FOR = 3600.0  # seconds for which the rules of a site are used
_MAX_SITES = 10_000
_PATIENCE = 2.0  # seconds that a task waits for its turn in its slot; it comes back for longer ones
_EXAMPLE = {
    "url": "https://example.org/products/7731",
    "select": {"name": "h1", "image": {"css": "img.main", "attr": "src"}},
    "parts": ["json_ld"],
}


class Pages(HandlerSettings, frozen=True):
    """Settings of scrape_url.

    `agent`: the name that robots.txt knows it by, and its User-Agent, to which `contact` is added, a URL or
    an address. `pause`: seconds between requests to one host, over all workers; robots.txt may ask for more.
    `robots`: whether robots.txt is obeyed. `max_bytes`: of a page. `timeout`: seconds for one request.
    """

    table: ClassVar[str] = "pages"
    task: ClassVar[str] = "scrape_url"

    agent: str = "windlass"
    contact: str | None = None
    pause: float = 1.0
    robots: bool = True
    max_bytes: int = 5 << 20
    timeout: float = 20.0
    queue: str = "pages"
    max_attempts: int = _BACKOFF.max_attempts

    def __call__(self, app: "App") -> TaskType[..., Any, Any]:
        """Declare scrape_url and, unless `pause` is 0, its limit per host."""
        required("selectolax.lexbor", "web", self.task)
        declared: TaskType[..., Any, Any] = app.task(
            name=self.task,
            queue=self.queue,
            backoff=_BACKOFF,
            max_attempts=self.max_attempts,
            timeout=self.timeout * (_MAX_REDIRECTS + 2) + 60,
            fatal=FetchRefused,
            example=_EXAMPLE,
        )(_Scraper(self, app).scrape_url)
        if self.pause > 0:
            rate = min(1 / self.pause, MAX_RATE)
            app.limit("scrape_url-per-host", type=declared, by="url.host", running=1, rate=rate, burst=1)
        return declared


class Page(Brief, Struct, frozen=True, kw_only=True):
    """The result. `selected` has the fields of `select`; other parts are there if they were asked for.

    `unchanged`: the page is still what `etag` or `last_modified` stand for, and was not fetched.
    """

    url: str  # of the last redirect
    status: int
    etag: str | None = None
    last_modified: str | None = None
    unchanged: bool = False
    title: str | None = None
    selected: dict[str, Any] = {}
    meta: dict[str, str] | UnsetType = UNSET
    json_ld: list[Any] | UnsetType = UNSET
    links: list[str] | UnsetType = UNSET
    text: str | UnsetType = UNSET


class _Scraper:
    def __init__(self, settings: Pages, app: "App") -> None:
        self._settings = settings
        self._app = app
        contact = f" (+{settings.contact})" if settings.contact else ""
        self._agent = {"User-Agent": f"{settings.agent}{contact}"}
        self._fetcher = Fetcher(deadline=settings.timeout)
        self._robots_fetcher = Fetcher(deadline=settings.timeout, redirects=_MAX_REDIRECTS)
        self._politeness = Politeness()
        self._sites: dict[str, tuple[Robots, float]] = {}  # rules, and until when they are used

    async def scrape_url(
        self,
        url: str,
        select: dict[str, Selector | str] | None = None,
        parts: list[Part] | None = None,
        only: str | None = None,
        etag: HeaderValue | None = None,
        last_modified: HeaderValue | None = None,
        *,
        ctx: Context = INJECTED,
    ) -> Any:
        """Fetch a page and extract from it.

        `select`: CSS selectors by name. `parts`: more to extract. `only`: return the selected field of this
        name alone. `etag`, `last_modified`: of an earlier result; an unchanged page is not sent again.
        """
        chosen = {
            name: Selector(css=one) if isinstance(one, str) else one for name, one in (select or {}).items()
        }
        if only is not None and only not in chosen:
            raise Fatal(f"only must be a name in `select`, not {only[:100]!r}")
        headers = {"If-None-Match": etag, "If-Modified-Since": last_modified}
        fetched, final = await self._page(url, {k: v for k, v in headers.items() if v}, ctx)
        ctx.note(status=fetched.status, bytes=len(fetched.body), url=final[:1000])
        tags: dict[str, Any] = {
            "etag": fetched.headers.get("etag", etag),
            "last_modified": fetched.headers.get("last-modified", last_modified),
        }
        if fetched.status == 304:
            return Page(url=final, status=304, unchanged=True, **tags)
        require_success(fetched, urlsplit(final).hostname or "the server")
        wanted = Wanted(url=final, charset=_charset(fetched), select=chosen, parts=_ordered(parts or []))
        found = await self._extracted(fetched.body, wanted)
        if only is not None:
            return found["selected"][only]
        return Page(url=final, status=fetched.status, **tags, **found)

    async def _extracted(self, body: bytes, wanted: Wanted) -> dict[str, Any]:
        try:
            found, _ = await run_in_sandbox(FUNCTION, msgspec.to_builtins(wanted), [body], Bounds(cpu=10))
        except SandboxError as error:
            raise Fatal(f"the page cannot be read: {error}") from None
        result: dict[str, Any] = found
        return result

    async def _page(self, url: str, headers: dict[str, str], ctx: Context) -> tuple[Fetched, str]:
        """Fetch a page and follow redirects, each as politely as the first."""
        for _ in range(_MAX_REDIRECTS + 1):
            parts = _split(url)
            robots = await self._rules(parts)
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            if not await asyncio.to_thread(robots.allows, path):  # may take some hundred milliseconds
                raise Fatal(f"robots.txt of {parts.hostname} does not allow this page")
            await self._turn(parts, robots, ctx)
            self._fetcher.allowed = self._app.allowed_networks
            fetched = await self._fetcher.fetch(
                url, headers={**self._agent, "Accept": ", ".join(_TYPES), **headers}, max_bytes=self._most
            )
            where = fetched.headers.get("location")
            if fetched.status not in REDIRECTS or where is None:
                if 200 <= fetched.status < 300 and _kind(fetched) not in _TYPES:
                    raise Fatal(f"the page is {_kind(fetched) or 'of no type'}, not HTML")
                return fetched, url
            url = urljoin(url, where)
        raise Fatal(f"more than {_MAX_REDIRECTS} redirects")

    @property
    def _most(self) -> int:
        return self._settings.max_bytes

    async def _turn(self, parts: SplitResult, robots: Robots, ctx: Context) -> None:
        """Wait for the turn of this task; raises Snooze if that is not soon."""
        host, pause = parts.netloc.lower(), max(self._settings.pause, robots.delay)
        while (left := self._politeness.wait(host, ctx.task_id, pause)) > 0:
            if left > _PATIENCE:
                raise Snooze(left)
            await asyncio.sleep(left)

    async def _rules(self, parts: SplitResult) -> Robots:
        if not self._settings.robots:
            return Robots()
        site = f"{parts.scheme}://{parts.netloc}"
        found = self._sites.get(site)
        if found is None or monotonic() >= found[1]:
            if len(self._sites) >= _MAX_SITES:
                self._sites.clear()
            found = await self._fetched_rules(site), monotonic() + _ROBOTS_FOR
            self._sites[site] = found
        return found[0]

    async def _fetched_rules(self, site: str) -> Robots:
        """Fetch robots.txt. Without one everything is allowed; if it cannot be had now, nothing is yet."""
        self._robots_fetcher.allowed = self._app.allowed_networks
        fetched = await self._robots_fetcher.fetch(
            f"{site}/robots.txt", headers=self._agent, max_bytes=MAX_BYTES, cut=True
        )
        if 400 <= fetched.status < 500 and fetched.status != 429:
            return Robots()
        require_success(fetched, f"robots.txt of {urlsplit(site).hostname}")
        return parse_robots(fetched.body.decode("utf-8", "replace"), self._settings.agent)


def _split(url: str) -> SplitResult:
    if len(url) > _MAX_URL:
        raise Fatal(f"the URL has {len(url):,} characters, at most {_MAX_URL:,}")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise Fatal("the URL cannot be read") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise Fatal("only http:// and https:// URLs with a host, and without a user name, can be fetched")
    return parts


def _kind(fetched: Fetched) -> str:
    return fetched.headers.get("content-type", "").partition(";")[0].strip().lower()


def _charset(fetched: Fetched) -> str | None:
    _, found, value = fetched.headers.get("content-type", "").lower().partition("charset=")
    return value.partition(";")[0].strip(" \"'") if found else None


def _ordered(parts: list[Part]) -> tuple[Part, ...]:
    """Return each part once, `text` last, for which scripts are removed from the page."""
    return tuple(sorted(dict.fromkeys(parts), key=lambda part: part == "text"))


# -- politeness ----------------------------------------------------------------------------------------
# Tasks for one host already start apart, by a limit of the store. This is for what that limit cannot know:
# redirects to other hosts, and sites that ask for longer pauses.


MAX_TICKETS = 100_000


class Politeness:
    """Gives each task its turn for a host, in this process.

    A task that has to wait is told how long, and comes back at its turn.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._free_at: dict[str, float] = {}  # by host
        self._tickets: dict[tuple[str, str], float] = {}  # by host and task: when it is its turn

    def wait(self, host: str, task_id: str, pause: float) -> float:
        """Return the seconds until this task's turn; 0 if it is now, and then the turn is used up."""
        now = self._clock()
        ticket = self._tickets.pop((host, task_id), None)
        if ticket is None:
            if len(self._free_at) >= MAX_TICKETS:
                self._free_at = {one: at for one, at in self._free_at.items() if at > now}
            ticket = max(self._free_at.get(host, now), now)
            self._free_at[host] = ticket + pause
        if ticket <= now:
            return 0.0
        if len(self._tickets) >= MAX_TICKETS:  # of tasks that ran elsewhere, or were cancelled
            self._tickets.clear()
        self._tickets[host, task_id] = ticket
        return ticket - now
