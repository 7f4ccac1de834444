"""scrape_url against a server on the loopback: what it fetches, how politely, and what it extracts."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.handlers.http_sink import Answer, Received, http_sink
from tests.handlers.runs import new_app, run
from tests.loops.workers import block, drained, working
from windlass import RESULT, App, State, Task, chain, handlers
from windlass._stores.memory import MemoryStore
from windlass.handlers.pages.extract import decoded, extract
from windlass.handlers.pages.handler import Politeness
from windlass.handlers.pages.robots import parse_robots

HTML = {"Content-Type": "text/html; charset=utf-8"}
PAGE = """<!doctype html><html><head><title> Rope \u2693
 shop </title><base href="/shop/">
<meta name="description" content="All ropes"><meta property="og:title" content="Ropes">
<script type="application/ld+json">{"@type": "Product", "name": "rope"}</script>
<script type="application/ld+json">{broken</script><style>p { color: red }</style></head>
<body><h1>Ropes &amp; <b>anchors</b></h1><img class="main" src="rope.png">
<p class="price">7.50</p><p class="price">9.00</p>
<a href="a">A</a><a href="/b#c">B</a><a href="a">again</a><a href="javascript:x()">J</a><a href="http://[x">X</a>
<script>var hidden = 1;</script></body></html>"""


def site(pages: dict[str, Answer]) -> Callable[[Received], Answer]:
    return lambda request: pages.get(request.path.partition("?")[0], Answer(404))


def html(text: str = PAGE, **headers: str) -> Answer:
    return Answer(200, text.encode(), {**HTML, **headers})


def message(task: Task) -> str:
    return task.error.message if task.error else ""


def scraper(app: App, **settings: Any) -> Any:
    return app.include(handlers.Pages(**{"pause": 0.0} | settings))


async def test_a_page_is_extracted() -> None:
    app = new_app()
    with http_sink(route=site({"/p": html(ETag='"1"')})) as web:
        task = await run(
            scraper(app, contact="https://example.org/bot"),
            app,
            url=f"{web.url}/p?x=1",
            select={
                "name": "h1",
                "image": {"css": "img.main", "attr": "src"},
                "prices": {"css": ".price", "all": True},
                "missing": "h7",
            },
            parts=["text", "meta", "json_ld", "links"],
        )

    assert task.state is State.COMPLETED, message(task)
    assert json.loads(task.result or b"") == {
        "url": f"{web.url}/p?x=1",
        "status": 200,
        "etag": '"1"',
        "last_modified": None,
        "unchanged": False,
        "title": "Rope \u2693 shop",
        "selected": {
            "name": "Ropes & anchors",
            "image": f"{web.url}/shop/rope.png",
            "prices": ["7.50", "9.00"],
            "missing": None,
        },
        "meta": {"description": "All ropes", "og:title": "Ropes"},
        "json_ld": [{"@type": "Product", "name": "rope"}],
        "links": [f"{web.url}/shop/a", f"{web.url}/b"],
        "text": "Ropes & anchors 7.50 9.00 A B again J X",
    }
    assert [one.path for one in web.received] == ["/robots.txt", "/p?x=1"]
    assert {one.headers["User-Agent"] for one in web.received} == {"windlass (+https://example.org/bot)"}


async def test_one_field_goes_on_to_the_next_task() -> None:
    app = new_app()
    scrape, got = scraper(app), []

    @app.task
    async def keep(image: str) -> None:
        got.append(image)

    with http_sink(route=site({"/p": html()})) as web:
        select = {"image": {"css": "img", "attr": "src"}}
        first = scrape.step(url=f"{web.url}/p", select=select, only="image")
        await app.client.enqueue(chain(first, keep.step(image=RESULT)))
        await drained(app)

    assert got == [f"{web.url}/shop/rope.png"]


async def test_a_page_that_is_unchanged_is_not_sent_again() -> None:
    app = new_app()
    with http_sink(route=site({"/p": Answer(304)})) as web:
        tags = {"etag": '"1"', "last_modified": "Mon, 16 Nov 2026 12:00:00 GMT"}
        task = await run(scraper(app), app, url=f"{web.url}/p", **tags)

    headers = web.received[-1].headers
    assert (headers["If-None-Match"], headers["If-Modified-Since"]) == (tags["etag"], tags["last_modified"])
    result = json.loads(task.result or b"")
    assert (result["unchanged"], result["etag"]) == (True, '"1"')


@pytest.mark.parametrize(
    ("robots", "state", "fetched"),
    [
        (Answer(200, b"User-agent: *\nDisallow: /"), State.DEAD, False),
        (Answer(200, b"User-agent: windlass\nAllow: /p\nDisallow: /"), State.COMPLETED, True),
        (Answer(404), State.COMPLETED, True),
        (Answer(403), State.COMPLETED, True),
        (Answer(503), State.SCHEDULED, False),
        (Answer(429), State.SCHEDULED, False),
        (Answer(cut=True), State.SCHEDULED, False),
    ],
)
async def test_robots_are_heard(robots: Answer, state: State, fetched: bool) -> None:
    app = new_app()
    with http_sink(route=site({"/robots.txt": robots, "/p": html()})) as web:
        task = await run(scraper(app), app, url=f"{web.url}/p")

    assert task.state is state
    assert ("/p" in [one.path for one in web.received]) is fetched


async def test_the_rules_of_a_site_are_fetched_once() -> None:
    app = new_app()
    with http_sink(route=site({"/p": html()})) as web:
        scrape = scraper(app)
        for _ in range(3):
            await run(scrape, app, url=f"{web.url}/p")

    assert [one.path for one in web.received].count("/robots.txt") == 1


async def test_redirects_are_as_polite_as_the_first_request() -> None:
    app = new_app()
    robots = Answer(200, b"User-agent: *\nDisallow: /secret")
    moved, secret = Answer(301, headers={"Location": "b"}), Answer(302, headers={"Location": "/secret"})
    pages = {"/robots.txt": robots, "/a": moved, "/b": html(), "/c": secret, "/secret": html()}
    pages["/loop"] = Answer(302, headers={"Location": "/loop"})
    pages["/out"] = Answer(302, headers={"Location": "http://169.254.169.254/latest"})
    with http_sink(route=site(pages)) as web:
        scrape = scraper(app)
        tasks = [await run(scrape, app, url=f"{web.url}/{name}") for name in ("a", "c", "loop", "out")]

    assert [one.state for one in tasks] == [State.COMPLETED, State.DEAD, State.DEAD, State.DEAD]
    assert json.loads(tasks[0].result or b"")["url"] == f"{web.url}/b"
    assert "robots.txt" in message(tasks[1])
    assert "more than 5 redirects" in message(tasks[2])
    assert "169.254.169.254 is not public" in message(tasks[3])
    assert "/secret" not in [one.path for one in web.received]


@pytest.mark.parametrize(
    ("answer", "payload", "expected"),
    [
        (Answer(200, b"%PDF", {"Content-Type": "application/pdf"}), {}, "application/pdf, not HTML"),
        (Answer(200, b"x" * 3000, HTML), {}, "larger than 2,000 bytes"),
        (Answer(200, b"\x1f\x8b", {**HTML, "Content-Encoding": "gzip"}), {}, "compressed"),
        (Answer(404), {}, "404 Not Found"),
        (html("<p>"), {"select": {"a": "p["}}, "'p[' is not a CSS selector"),
        (html("<p>"), {"only": "a"}, "only must be a name in `select`"),
        (html("<p>"), {"url": "ftp://example.org"}, "only http:// and https://"),
        (html("<p>"), {"url": "http://a:b@example.org"}, "without a user name"),
        (html("<p>"), {"url": "http://[x"}, "cannot be read"),
    ],
)
async def test_what_cannot_be_read_is_dead_at_once(
    answer: Answer, payload: dict[str, Any], expected: str
) -> None:
    app = new_app()
    with http_sink(route=site({"/p": answer})) as web:
        task = await run(scraper(app, max_bytes=2000), app, **{"url": f"{web.url}/p"} | payload)

    assert task.state is State.DEAD
    assert expected in message(task)


async def test_a_host_gets_one_request_at_a_time_from_all_workers() -> None:
    store, gate = MemoryStore(), threading.Lock()
    overlaps: list[str] = []

    def served(request: Received) -> Answer:
        if request.path == "/robots.txt":
            return Answer(404)
        return replace(html("<p>"), before=lambda: take(request.path))

    def take(path: str) -> None:
        if not gate.acquire(blocking=False):
            overlaps.append(path)
            return
        block(0.1)  # longer than the pause
        gate.release()

    with http_sink(route=served) as web:
        apps = [new_app(store=store) for _ in range(2)]
        scrapers = [scraper(app, pause=0.05) for app in apps]
        handles = await scrapers[0].aenqueue_many([{"url": f"{web.url}/{n}"} for n in range(6)])
        async with working(apps[0], slots=4), working(apps[1], slots=4):
            for handle in handles:
                await handle.wait(timeout=30)

    assert overlaps == []
    fetched = {one.path for one in web.received if one.path != "/robots.txt"}
    assert fetched == {f"/{n}" for n in range(6)}


async def test_hosts_have_a_rate_unless_there_is_no_pause() -> None:
    polite, hasty = new_app(), new_app()
    scraper(polite, pause=4.0)
    scraper(hasty, pause=0.0)
    for app in (polite, hasty):
        await app.open()

    (limit,) = await polite.operator.limits.list()
    assert (limit.type, limit.by, limit.running, limit.rate, limit.burst) == (
        "scrape_url",
        "url.host",
        1,
        0.25,
        1,
    )
    assert not await hasty.operator.limits.list()


def test_a_task_keeps_its_turn() -> None:
    now = [100.0]
    polite = Politeness(clock=lambda: now[0])

    assert [polite.wait("a", task, 10) for task in ("1", "2", "3")] == [0, 10, 20]
    assert polite.wait("b", "1", 10) == 0
    now[0] = 110
    assert (polite.wait("a", "2", 10), polite.wait("a", "3", 10)) == (0, 10)
    assert polite.wait("a", "4", 10) == 20
    now[0] = 500
    assert polite.wait("a", "5", 10) == 0


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        ("", "/a", True),
        ("User-agent: *\nDisallow:", "/a", True),
        ("User-agent: *\nDisallow: /a", "/ab", False),
        ("User-agent: *\nDisallow: /a/", "/a", True),
        ("User-agent: *\nDisallow: /\nAllow: /a", "/a", True),
        ("User-agent: *\nDisallow: /a\nAllow: /a", "/a", True),
        ("User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf", False),
        ("User-agent: *\nDisallow: /*.pdf$", "/x/y.pdf?z", True),
        ("User-agent: *\nDisallow: /a*b*c", "/a1b2c3", False),
        ("User-agent: *\nDisallow: /a*b*c", "/a1c2b3", True),
        ("User-agent: *\nDisallow: /a$", "/a", False),
        ("User-agent: *\nDisallow: /a$", "/ab", True),
        ("User-agent: *\nDisallow: /a*a$", "/a", True),
        ("User-agent: *\nDisallow: /%C3%A4", "/\u00e4", False),
        ("User-agent: other\nDisallow: /", "/a", True),
        ("User-agent: Windlass\nAllow: /\nUser-agent: *\nDisallow: /", "/a", True),
        ("User-agent: other\nUser-agent: windlass\nDisallow: /", "/a", False),
        ("user-AGENT: * # all\n disallow : /a # here", "/a", False),
        ("Disallow: /", "/a", True),
    ],
)
def test_rules_are_those_of_the_standard(rules: str, path: str, allowed: bool) -> None:
    assert parse_robots(rules, "windlass").allows(path) is allowed


def test_rules_cannot_take_long() -> None:
    robots = parse_robots("User-agent: *\n" + "Disallow: /" + "*a" * 5000 + "*b", "windlass")

    assert robots.allows("/" + "a" * 10_000)


@pytest.mark.parametrize(("value", "delay"), [("2", 2), ("0.5", 0.5), ("999999", 3600), ("x", 0), ("nan", 0)])
def test_a_site_can_ask_for_longer_pauses(value: str, delay: float) -> None:
    assert parse_robots(f"User-agent: *\nCrawl-delay: {value}", "windlass").delay == delay


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        ("\u00e4".encode(), None, "\u00e4"),
        (b"\xe4\x80", "iso-8859-1", "\u00e4\u20ac"),  # as browsers do
        (b'<meta charset="windows-1251">\xe4', None, '<meta charset="windows-1251">\u0434'),
        (b"\xef\xbb\xbf\xc3\xa4", "latin-1", "\u00e4"),
        ("\ufeff\u00e4".encode("utf-16-le"), None, "\u00e4"),
        (b"\xc3\xa4", "rot13", "\u00e4"),
        (b"\xc3\xa4", "no such", "\u00e4"),
        (b"\xff", "utf-8", "\ufffd"),
    ],
)
def test_pages_are_decoded_as_browsers_do(body: bytes, charset: str | None, text: str) -> None:
    assert decoded(body, charset) == text


def test_lists_are_bounded() -> None:
    page = b"".join(b'<a href="/%d">x</a>' % n for n in range(3000))
    found, _ = extract(
        {"url": "http://a/", "parts": ["links"], "select": {"a": {"css": "a", "all": True}}}, [page]
    )

    assert (len(found["links"]), len(found["selected"]["a"])) == (1000, 1000)
