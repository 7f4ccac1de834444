"""Live pages: one look for all viewers, the newest for the slow, nothing while nothing changes."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from windlass._dashboard import live
from windlass._dashboard.live import LivePages
from windlass._http.web.problems import Problem

DEADLINE = 10.0


class Board:
    """A page whose text the test changes, and that counts how often it is rendered."""

    def __init__(self) -> None:
        self.text = "one"
        self.trouble: Exception | None = None
        self.renders = 0
        self.rendering = asyncio.Event()
        self.may_look = True
        self.closing = asyncio.Event()
        self.pages = LivePages(self.closing)

    async def render(self) -> str:
        self.renders += 1
        self.rendering.set()
        if self.trouble is not None:
            raise self.trouble
        return self.text

    async def recheck(self) -> None:
        if not self.may_look:
            raise Problem("unauthorized", "the key is revoked")

    def watch(self, key: object = "page", personal: str = "") -> AsyncIterator[bytes]:
        return self.pages.watch(key, self.render, lambda text: text + personal, self.recheck)

    async def rendered(self, more: int) -> None:
        """Wait until it was rendered this many times more."""
        wanted = self.renders + more
        async with asyncio.timeout(DEADLINE):
            while self.renders < wanted:
                self.rendering.clear()
                await self.rendering.wait()


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Board:
    monkeypatch.setattr(live, "EVERY", 0.01)
    return Board()


async def after(events: AsyncIterator[bytes]) -> str:
    async with asyncio.timeout(DEADLINE):
        return (await anext(events)).decode()


async def test_viewers_share_what_is_rendered_and_get_their_own_token(board: Board) -> None:
    viewers = [board.watch(personal=f" for {number}") for number in range(50)]
    assert [await after(one) for one in viewers] == [f"data: one for {number}\n\n" for number in range(50)]
    before = board.renders
    await board.rendered(20)
    assert board.renders - before <= 25  # not 50 times as many
    board.text = "two"
    assert {(await after(one))[:9] for one in viewers} == {"data: two"}


async def test_a_slow_viewer_gets_the_newest_and_no_queue(board: Board) -> None:
    events = board.watch()
    assert "one" in await after(events)
    for number in range(20):
        board.text = f"version {number}"
        await board.rendered(2)
    assert await after(events) == "data: version 19\n\n"


async def test_nothing_is_sent_while_nothing_changes(board: Board, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "KEEP_ALIVE", 0.2)
    events = board.watch()
    await after(events)
    assert await after(events) == ": keep-alive\n\n"
    assert board.renders > 2


async def test_nobody_looks_at_a_page_without_viewers(board: Board) -> None:
    events = board.watch()
    await after(events)
    looking = board.pages._pages["page"]._looking
    assert looking is not None
    await events.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(DEADLINE):
        await looking
    assert not board.pages._pages
    assert "one" in await after(board.watch())


async def test_trouble_is_told_and_its_end(board: Board) -> None:
    events = board.watch()
    await after(events)
    board.trouble = Problem("store-unavailable", "the store failed; retry")
    assert await after(events) == "event: trouble\ndata: the store failed; retry\n\n"
    board.trouble, board.text = None, "three"
    assert await after(events) == "event: recovered\ndata: \n\n"
    assert await after(events) == "data: three\n\n"


async def test_an_error_of_ours_is_told_and_does_not_end_the_page(board: Board) -> None:
    events = board.watch()
    await after(events)
    board.trouble = ZeroDivisionError("secret")
    assert await after(events) == "event: trouble\ndata: internal error; the server's log has the details\n\n"
    board.trouble = None
    assert "recovered" in await after(events)


async def test_a_stream_ends_when_its_viewer_may_not_look_or_the_server_closes(board: Board) -> None:
    events, others = board.watch(), board.watch()
    await after(events)
    await after(others)
    board.may_look, board.text = False, "secret"
    with pytest.raises(StopAsyncIteration):
        await after(events)
    board.may_look = True
    board.closing.set()
    async with asyncio.timeout(DEADLINE):
        async for _ in others:
            pass


async def test_what_tasks_contain_cannot_add_events_to_the_stream(board: Board) -> None:
    board.text = "a\r\nevent: trouble\rdata: gone\n\nevent: x"
    sent = await after(board.watch())
    assert all(line.startswith("data: ") for line in sent.rstrip("\n").split("\n"))
    assert "\r" not in sent
