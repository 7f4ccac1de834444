"""Mistakes to put into the log, one at a time, so that tests can show that they would be noticed."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from windlass._stores.jetstream import entry as entries
from windlass._stores.jetstream import follower, log
from windlass._stores.jetstream.entry import Chain, Entry, Kind, decode, encode, takes
from windlass._stores.jetstream.follower import Follower
from windlass._stores.jetstream.log import Appender

Mistake = Callable[[pytest.MonkeyPatch], None]


def accepting(rule: Callable[[Chain, int, Entry], bool]) -> Mistake:
    """Let another rule say which entries count, of those that do not take the store over."""

    def accepts(self: Chain, place: int, entry: Entry) -> bool:
        self.place = place
        if takes(place, entry):
            self.epoch, self.n = place, 0
            return True
        if entry.kind != Kind.TAKE and rule(self, place, entry):
            self.n = entry.n
            return True
        return False

    return lambda patch: patch.setattr(Chain, "accepts", accepts)


def first_rule(patch: pytest.MonkeyPatch) -> None:
    """An entry of the current epoch counts at the place that it was published for, whatever its number."""
    publish = Appender._publish

    async def addressed(self: Appender, data: bytes, place: int) -> int | None:
        entry = decode(data)
        return await publish(self, encode(replace(entry, now=place)), place)

    patch.setattr(Appender, "_publish", addressed)
    accepting(lambda chain, place, entry: (entry.epoch, entry.now) == (chain.epoch, place))(patch)


def take_at_any_place(patch: pytest.MonkeyPatch) -> None:
    def anywhere(_: int, entry: Entry) -> bool:
        return entry.kind == Kind.TAKE

    patch.setattr(entries, "takes", anywhere)
    patch.setattr(log, "takes", anywhere)


def stored_is_enough(patch: pytest.MonkeyPatch) -> None:
    """An entry is said to stand as soon as it is stored, whatever became of the one before it."""
    stand = Appender._stand

    async def at_once(self: Appender, n: int, data: bytes, before: Any) -> int:
        stored = await self._publish(data, self.epoch + n + self._void)
        return await stand(self, n, data, before) if stored is None else stored

    patch.setattr(Appender, "_stand", at_once)


def take_overlooked(patch: pytest.MonkeyPatch) -> None:
    """An owner looks for its entry beyond the TAKE of another."""
    patch.setattr(log, "takes", lambda _place, _entry: False)


def parts_kept(patch: pytest.MonkeyPatch) -> None:
    """A TAKE leaves the parts of an unfinished commit to the next commit."""
    play = Follower.play

    def played(self: Follower, place: int, data: bytes) -> None:
        parts = self._parts
        play(self, place, data)
        if decode(data).kind == Kind.TAKE:
            self._parts = parts

    patch.setattr(Follower, "play", played)


def place_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A reader that begins with a snapshot does not know epoch and number at its place."""
    patch.setattr(follower, "Chain", lambda place=0, _epoch=0, _n=0: Chain(place))


LOG_MISTAKES: dict[str, Mistake] = {
    "the first rule: epoch and place count": first_rule,
    "the epoch alone counts": accepting(lambda chain, _, entry: entry.epoch == chain.epoch),
    "the number may skip": accepting(
        lambda chain, _, entry: entry.epoch == chain.epoch and entry.n > chain.n
    ),
    "the number alone counts": accepting(lambda chain, _, entry: entry.n == chain.n + 1),
    "whatever the stream has stored counts": accepting(lambda _chain, _place, _entry: True),
    "a TAKE counts at any place": take_at_any_place,
    "an entry stands as soon as it is stored": stored_is_enough,
    "an owner overlooks the TAKE of another": take_overlooked,
    "parts survive a TAKE": parts_kept,
    "a snapshot without epoch and number": place_forgotten,
}
