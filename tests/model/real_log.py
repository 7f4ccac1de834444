"""Plays steps of the log model on the real log of the store on JetStream, and compares the two.

The stream is a stand-in: it stores a message when the model does, whether the sequence number that it expects
is right or not, and it acknowledges a publish or leaves its writer in doubt, by lot.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.model.checker import Step
from tests.model.log_protocol import LogModel, World
from tests.model.log_rules import History, Kind
from windlass._stores.jetstream import entry as entries
from windlass._stores.jetstream.entry import PAGE_BYTES, Base, decode, pack
from windlass._stores.jetstream.follower import Follower
from windlass._stores.jetstream.log import Appender, FencedError
from windlass._stores.jetstream.snapshots import Manifest
from windlass._stores.jetstream.stream import Extent

TURNS = 40  # of the event loop, after which nothing moves by itself
LOOKS = 20  # after which a reader must have seen that there is no more
PAGES = 64  # of the file


class Published(NamedTuple):
    data: bytes
    place: int


class Stream:
    """The log that all reigns share."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.first = 1
        self.files: dict[str, tuple[Base, bytes]] = {}  # snapshots
        self.published: set[Published] = set()
        self.waiting: dict[Published, list[asyncio.Future[int | None]]] = {}

    def store(self, message: Published, *, acknowledged: bool) -> None:
        self.entries.append(message.data)
        for future in self.waiting.pop(message, []) if acknowledged else []:
            if not future.done():
                future.set_result(len(self.entries))

    # -- as snapshots ------------------------------------------------------------------------------------

    async def manifests(self) -> list[Manifest]:
        found = [Manifest(base, len(data), b"") for base, data in self.files.values()]
        return sorted(found, key=lambda one: one.base.place, reverse=True)

    async def download(self, manifest: Manifest, file: int) -> bool:
        os.pwrite(file, self.files[manifest.base.generation][1], 0)
        return True


class Way:
    """One process's way to the log. It may read only while it looks, so that the model sets the pace."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._looks: asyncio.Future[Any] | None = None  # the append that may look
        self._changed = asyncio.Condition()
        self._begun = 0
        self._in_doubt: dict[asyncio.Future[Any], asyncio.Future[int | None]] = {}

    async def publish(self, data: bytes, place: int) -> int | None:
        message = Published(data, place)
        self._stream.published.add(message)
        future = asyncio.get_running_loop().create_future()
        self._stream.waiting.setdefault(message, []).append(future)
        task = asyncio.current_task()
        assert task is not None
        self._in_doubt[task] = future
        self._looks = None
        return await future

    async def look(self, append: "asyncio.Future[Any]") -> None:
        """Let an append give up waiting for its acknowledgement, and read."""
        doubt = self._in_doubt.get(append)
        if doubt is not None and not doubt.done():
            doubt.set_result(None)
        async with self._changed:
            self._looks = append
            self._changed.notify_all()

    async def read(self, place: int) -> bytes | None:
        async with self._changed:
            await self._changed.wait_for(lambda: self._looks is asyncio.current_task())
        return self._stream.entries[place - 1] if self._is_there(place) else None

    def _is_there(self, place: int) -> bool:
        return self._stream.first <= place <= len(self._stream.entries)

    async def extent(self) -> Extent:
        return Extent(self._stream.first, len(self._stream.entries))

    async def entries(self, place: int) -> AsyncGenerator[list[tuple[int, bytes]], None]:
        self._begun += 1
        assert self._begun < LOOKS, "a reader of the log comes to no end"
        for _ in range(LOOKS):
            if place < self._stream.first:
                return
            found = list(enumerate(self._stream.entries[place - 1 :], place))
            place += len(found)
            yield found

    async def delete_through(self, place: int) -> None:
        self._stream.first = max(self._stream.first, place + 1)
        kept = {name: one for name, one in self._stream.files.items() if one[0].place >= place}
        self._stream.files = kept


class RealReign:
    """A process that has tried to own the store."""

    def __init__(self, stream: Stream, number: int) -> None:
        self.way = Way(stream)
        self.number = number
        self.base: Base | None = None
        self.take(stream)

    def take(self, stream: Stream) -> None:
        self.appender = Appender(
            self.way, place=len(stream.entries) + 1, owner=str(self.number), now=lambda: 0
        )
        self.appends = [self.appender.take()]

    def commit(self, n: int, parts: int) -> None:
        """Append a commit that writes a page of its own, and its name into the first page."""
        name = f"{self.number}.{n}".encode()
        noise = Random(n).randbytes(PAGE_BYTES // 2) if parts > 1 else b""
        pages = {1: name + noise, 2 + 10 * self.number + n: name}
        before = self.appender.n
        self._note_all(before, lambda: self.appender.commit(pack(padded(pages)), PAGES))
        assert self.appender.n - before == parts

    def _note_all(self, before: int, append: Any) -> None:
        """Remember the future of every entry that it appends, not only that of the last part."""
        futures: list[asyncio.Future[int]] = []
        original = self.appender._append

        def noted(entry: entries.Entry) -> "asyncio.Future[int]":
            futures.append(original(entry))
            return futures[-1]

        self.appender._append = noted  # type: ignore[method-assign]
        try:
            append()
        finally:
            del self.appender._append
        self.appends += futures

    @property
    def places(self) -> tuple[int, ...]:
        """Of the entries that stand, as far as it knows."""
        return tuple(one.result() for one in self.appends if one.done() and one.exception() is None)

    @property
    def is_fenced(self) -> bool:
        return self.appender.fenced.done()


class RealLog:
    """One run of the model, on the real code."""

    def __init__(self, model: LogModel, folder: Path, random: Random) -> None:
        self._model, self._folder, self._random = model, folder, random
        self.stream = Stream()
        self.reigns: list[RealReign] = []

    async def play(self, step: Step[World]) -> World:
        """Play a step, and compare; returns the model's state, which may be further than after the step."""
        assert step.call is not None
        verb, *arguments = step.call
        await getattr(self, f"_{verb}")(*arguments)
        await idle()
        world = self._catch_up(step.state)
        self._compare(step.text, world)
        await self._compare_readers(step.text, world)
        return world

    async def close(self) -> None:
        for reign in self.reigns:
            for append in reign.appends:
                append.cancel()
        await idle()

    # -- steps -------------------------------------------------------------------------------------------

    async def _store(self, message: Any) -> None:
        key = (str(message.entry.reign), message.entry.epoch, message.entry.n, message.expected + 1)
        found = next(one for one in self.stream.published if named(one) == key)
        self.stream.store(found, acknowledged=self._random.random() < 0.6)

    async def _take(self, number: int) -> None:
        assert number == len(self.reigns)
        self.reigns.append(RealReign(self.stream, number))

    async def _append(self, number: int, kind: Kind) -> None:
        reign = self.reigns[number]
        n = reign.appender.n
        if kind is Kind.READ:
            reign.appends.append(reign.appender.nothing())
        elif kind is Kind.SNAPSHOT:
            reign.base = Base(f"{number}-{n}", reign.places[-1], reign.appender.epoch, n - 1)
            self.stream.files[reign.base.generation] = reign.base, self._file_at(reign.base.place)
            reign.appends.append(reign.appender.snapshot(reign.base))
        else:
            reign.commit(n, parts=2 if kind is Kind.PART else 1)

    async def _look(self, number: int) -> None:
        reign = self.reigns[number]
        append = next(one for one in reign.appends if not one.done())
        await reign.way.look(append)
        await idle()
        if reign.is_fenced and not reign.places:  # it never owned the store, and tries again
            assert isinstance(append.exception(), FencedError)
            reign.take(self.stream)

    async def _delete(self, number: int) -> None:
        reign = self.reigns[number]
        assert reign.base is not None
        await reign.way.delete_through(reign.base.place)

    def _file_at(self, place: int) -> bytes:
        """The store's file at a place of the log."""
        follower = self._follower()
        try:
            known = next(iter(sorted(self.stream.files.values(), key=lambda one: -one[0].place)), None)
            if self.stream.first > 1:
                assert known is not None
                follower.begin(known[0])
                os.pwrite(follower.file, known[1], 0)
            for at in range(follower.chain.place + 1, place + 1):
                follower.play(at, self.stream.entries[at - 1])
            return follower.path.read_bytes()
        finally:
            follower.close()

    # -- comparison --------------------------------------------------------------------------------------

    def _catch_up(self, world: World) -> World:
        """Let the model look, too, where an acknowledgement has told the real code; it must find the same."""
        for number, reign in enumerate(self.reigns):
            while len(reign.places) > (known := len(world.reigns[number].places)):
                states = [step.state for step in self._model.steps(world) if step.call == ("look", number)]
                found = [one for one in states if one.reigns[number].places == reign.places[: known + 1]]
                assert found, f"reign {number} takes {reign.places} for the places of its entries"
                world = found[0]
        return world

    def _compare(self, text: str, world: World) -> None:
        log = [described(data) for data in self.stream.entries]
        expected = [(one.reign, one.epoch, one.n) for one in world.log]
        assert log == expected, f"{text}: the log has {log}, the model {expected}"
        assert self.stream.first == world.first, text
        for number, reign in enumerate(world.reigns):
            real = self.reigns[number]
            assert real.places == reign.places, f"{text}: reign {number} knows {real.places}, {reign.places}"
            assert real.is_fenced == reign.fenced, f"{text}: reign {number} is fenced: {real.is_fenced}"
        published = {named(one) for one in self.stream.published}
        missing = {wanted(one) for one in world.messages} - published
        assert not missing, f"{text}: not published: {missing}"

    async def _compare_readers(self, text: str, world: World) -> None:
        """A new reader has what the model's have, from the beginning or from any snapshot that counts."""
        history = self._model.replays(world)[0].history
        follower = self._follower()
        try:
            await follower.follow(silence=-1.0)
            found = contents(follower.path)
        finally:
            follower.close()
        assert found == pages_of(history), f"{text}: a reader has {found}, the model {history}"
        for base, data in list(self.stream.files.values()):
            self._compare_reader_from(text, base, data, history)

    def _compare_reader_from(self, text: str, base: Base, data: bytes, history: History) -> None:
        follower = self._follower()
        try:
            follower.begin(base)
            os.pwrite(follower.file, data, 0)
            for at in range(max(base.place + 1, self.stream.first), len(self.stream.entries) + 1):
                follower.play(at, self.stream.entries[at - 1])
            if base.place + 1 >= self.stream.first and follower._is_whole():
                found = contents(follower.path)
                assert found == pages_of(history), f"{text}: from {base} a reader has {found}, {history}"
        finally:
            follower.close()

    def _follower(self) -> Follower:
        return Follower(Way(self.stream), self.stream, self._folder)  # type: ignore[arg-type]


async def idle() -> None:
    """Wait until nothing moves by itself any more."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


def named(message: Published) -> tuple[str, int, int, int]:
    entry = decode(message.data)
    return entry.owner, entry.epoch, entry.n, message.place


def wanted(message: Any) -> tuple[str, int, int, int]:
    return str(message.entry.reign), message.entry.epoch, message.entry.n, message.expected + 1


def described(data: bytes) -> tuple[int, int, int]:
    entry = decode(data)
    return int(entry.owner), entry.epoch, entry.n


def padded(pages: dict[int, bytes]) -> dict[int, bytes]:
    return {number: data.ljust(PAGE_BYTES, b"\0") for number, data in pages.items()}


def contents(path: Path) -> dict[int, str]:
    """The names that commits have written into the pages of a file, by page."""
    data = path.read_bytes()
    pages = {at // PAGE_BYTES + 1: data[at : at + 8] for at in range(0, len(data), PAGE_BYTES)}
    return {number: text(page) for number, page in pages.items() if text(page)}


def text(page: bytes) -> str:
    return "".join(chr(one) for one in page[:3] if one)


def pages_of(history: History) -> dict[int, str]:
    """What these commits have written."""
    last = {1: name_of(history[-1])} if history else {}
    return last | {2 + 10 * commit[0][0] + commit[0][1]: name_of(commit) for commit in history}


def name_of(commit: tuple[tuple[int, int], ...]) -> str:
    reign, n = commit[0]
    return f"{reign}.{n}"
