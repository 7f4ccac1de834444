"""Live pages: each is rendered once a second while anyone looks at it, however many do.

A viewer gets the newest version, never a queue of older ones, and nothing while nothing has changed.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from time import monotonic

from .._http.web.problems import Problem
from .._timers import wait_for_event

logger = logging.getLogger("windlass.dashboard")

EVERY = 1.0
"""Seconds between two looks at the store for a page."""

RECHECK = 1.0
"""Seconds after which it is checked again that a viewer may still look."""

KEEP_ALIVE = 10.0
"""Seconds after which a stream without news sends a comment, so that proxies keep it open."""

_SHARE = 10  # Reading a page takes up at most one part in this many of the time.


class LivePage:
    """What the viewers of one page see."""

    def __init__(self, render: Callable[[], Awaitable[str]], closing: asyncio.Event) -> None:
        self.viewers = 0
        self.content: str | None = None
        self.trouble = ""  # why it could not be read the last time
        self.version = 0
        self._render = render
        self._closing = closing
        self._changed = asyncio.Event()  # replaced at each change
        self._looking: asyncio.Task[None] | None = None

    async def changed_since(self, version: int, seconds: float) -> None:
        """Wait until it is newer than this version, or the time is up."""
        if self.version == version:
            await wait_for_event(self._changed, seconds)

    def start(self) -> None:
        """Begin to look, unless it does."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while self.viewers and not self._closing.is_set():
            began = monotonic()
            content, trouble = self.content, ""
            try:
                content = await self._render()
            except Problem as problem:
                trouble = problem.detail
            except Exception:  # or the page would never change again
                logger.exception("cannot render a live page")
                trouble = "internal error; the server's log has the details"
            if (content, trouble) != (self.content, self.trouble):
                self.content, self.trouble = content, trouble
                self._tell()
            took = monotonic() - began
            await wait_for_event(self._closing, max(EVERY - took, took * (_SHARE - 1)))
        self._tell()  # so that streams see that the server closes

    def _tell(self) -> None:
        self.version += 1
        told, self._changed = self._changed, asyncio.Event()
        told.set()


class LivePages:
    """All pages that anyone looks at."""

    def __init__(self, closing: asyncio.Event) -> None:
        self._closing = closing
        self._pages: dict[object, LivePage] = {}

    async def watch(
        self,
        key: object,
        render: Callable[[], Awaitable[str]],
        personal: Callable[[str], str],
        recheck: Callable[[], Awaitable[None]],
    ) -> AsyncIterator[bytes]:
        """Yield the page as server-sent events: now, and whenever it has changed.

        Viewers of the same key share what `render` returns; `personal` completes it for one of them. `render`
        raises a Problem with what viewers are told.
        `recheck` raises when the viewer may no longer look.
        """
        page = self._pages.setdefault(key, LivePage(render, self._closing))
        page.viewers += 1
        page.start()
        try:
            seen, trouble, sent_at, is_owed = 0, "", monotonic(), False
            while not self._closing.is_set():
                await page.changed_since(seen, RECHECK)
                may_look = True
                try:
                    await recheck()
                except Problem as problem:
                    if problem.status < 500:
                        return
                    may_look = False  # not known: the store is away, and the keys with it
                if page.version == seen and not (is_owed and may_look):
                    if monotonic() - sent_at >= KEEP_ALIVE:
                        sent_at = monotonic()
                        yield b": keep-alive\n\n"
                    continue
                seen, sent_at = page.version, monotonic()
                if page.trouble != trouble:
                    trouble = page.trouble
                    yield _event(trouble, "trouble" if trouble else "recovered")
                if page.content is not None and not trouble:
                    is_owed = not may_look
                    if may_look:
                        yield _event(personal(page.content))
        finally:
            page.viewers -= 1
            if not page.viewers and self._pages.get(key) is page:
                del self._pages[key]


def _event(text: str, name: str = "") -> bytes:
    lines = [f"event: {name}"] if name else []
    # A carriage return ends a line of the stream, too: what tasks contain must not add fields to it.
    lines += [f"data: {line}" for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    return ("\n".join(lines) + "\n\n").encode()
