"""The supervisor: keeps a number of processes running, and replaces those that die, stall or are renewed.

See docs/decisions/0019-server-processes.md and 0029-worker-processes.md.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Any

from msgspec import Struct

from .._timers import wait_for_event
from ..errors import Refused
from .child import Child
from .control import STOP, STOP_NOW

_LONGEST_PAUSE = 10.0
_STEADY_SECONDS = 30.0  # a process that ran for so long is restarted at once
_TAKE_OVER_SECONDS = 300.0  # for a process that is to take over to be ready; lifespans may load much


def restart_pause(failures: int) -> float:
    """Return the seconds to wait before a process is started again that failed so many times in a row."""
    return 0.0 if failures <= 1 else min(0.25 * 2.0**failures, _LONGEST_PAUSE)


class Kind(Struct, frozen=True, kw_only=True):
    """What is supervised: how to start it, and how long to wait for it.

    Each process runs `command` with the descriptor of its control connection as the last argument, inherits
    `descriptors`, and is sent `settings` of its number and its seat as one line. A number has two seats: its
    process and the one that takes over from it have different ones while both live. Without a sign of life
    for `stall_seconds` a process is killed. `cut_seconds` after the order to stop at once, too. With
    `until_done` a process that exits with 0 has done its work, and is not replaced. `ended` is called with
    the seat of each that has ended.
    """

    noun: str
    command: Sequence[str]
    settings: Callable[[int, int], bytes]
    logger: logging.Logger
    descriptors: Sequence[int] = ()
    stall_seconds: float = 5
    cut_seconds: float = 3.0
    until_done: bool = False
    ended: Callable[[int], object] = bool


class _Place:
    """A number, the process that runs under it, and a request to replace that."""

    def __init__(self, number: int, child: Child) -> None:
        self.number = number
        self.child = child
        self.leaving: Child | None = None  # the process before it; it may still finish what it does
        self.requested = asyncio.Event()
        self.answered = asyncio.Event()

    def answer(self) -> None:
        self.requested.clear()
        self.answered.set()


class _Renewal(Struct, frozen=True):
    """Processes to replace, one by one. `insists`: until it succeeds, as the process itself asked for it."""

    processes: Sequence[tuple[_Place, Child]]
    insists: bool = False


class Supervisor:
    """Runs a number of processes of a kind."""

    def __init__(self, number: int, kind: Kind) -> None:
        self._number = number
        self._kind = kind
        self._places: list[_Place] = []
        self._children: set[Child] = set()  # all that live: those that start and those that stop, too
        self._stopping = asyncio.Event()
        self._renewals: asyncio.Queue[_Renewal] = asyncio.Queue()

    @property
    def ready(self) -> int:
        """How many places have a process that is ready."""
        return sum(place.child.is_ready for place in self._places)

    @contextmanager
    def handle_signals(self, stop: Callable[[], None] | None = None) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT, or call `stop` for that; replace all processes on SIGHUP."""
        loop = asyncio.get_running_loop()
        handlers = {SIGTERM: stop or self.stop, SIGINT: stop or self.stop, SIGHUP: self.renew_all}
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def stop(self) -> None:
        """Let all processes finish what they do; the second call does not wait for that."""
        order = STOP_NOW if self._stopping.is_set() else STOP
        self._stopping.set()
        for child in self._children:
            child.order(order)
            if order == STOP_NOW:
                asyncio.get_running_loop().call_later(self._kind.cut_seconds, child.kill)

    def renew_all(self) -> None:
        """Replace all processes, one by one: each is stopped when the one that takes over is ready."""
        self._kind.logger.info("rolling restart: replacing each %s in turn", self._kind.noun)
        self._renewals.put_nowait(_Renewal([(place, place.child) for place in self._places]))

    async def run(self, started: Callable[[], None]) -> None:
        """Run until stopped, or until all have done their work; `started` is called once all are ready.

        Raises Refused if one of them ends before; the others are stopped first.
        """
        try:
            try:
                # The first starts alone, so that an error of the app or the store is reported once.
                await self._start_place(1)
                await _all(self._start_place(number) for number in range(2, self._number + 1))
            except Refused:
                self.stop()
                await self._until_gone()
                raise
            if not self._stopping.is_set():
                started()
            await self._keep_all()
            await self._until_gone()
        finally:
            for child in self._children:
                child.kill()
            await self._until_gone()

    async def _start_place(self, number: int) -> None:
        if self._stopping.is_set():
            return
        child = await self._start(number, number)
        self._places.append(_Place(number, child))
        if not await child.until_ready() and not self._is_done(child) and not self._stopping.is_set():
            how = await child.ended
            raise Refused(f"{self._kind.noun} {number} {how} before it was ready; its log says why")

    async def _keep_all(self) -> None:
        renewing = asyncio.ensure_future(self._renew_in_turn())
        try:
            await _all(self._keep(place) for place in self._places)
        finally:
            renewing.cancel()

    async def _keep(self, place: _Place) -> None:
        """Restart the process when it ends, replace it when that is requested, until it has done its work."""
        failures = 0
        while not self._stopping.is_set():
            child = place.child
            await _first(child.ended, place.requested, child.wants_replacement)
            if child.ended.done():
                if self._stopping.is_set() or self._is_done(child):
                    return
                failures = 1 if child.lasted > _STEADY_SECONDS else failures + 1
                await self._restart(place, restart_pause(failures))
            elif place.requested.is_set():
                await self._renew(place)
            else:
                child.wants_replacement.clear()
                self._renewals.put_nowait(_Renewal([(place, child)], insists=True))

    async def _restart(self, place: _Place, pause: float) -> None:
        how = place.child.ended.result()
        text = "%s %d %s; restarting it in %g s"
        self._kind.logger.warning(text, self._kind.noun, place.number, how, pause)
        if not await wait_for_event(self._stopping, pause):
            started = await self._try_start(place.number, place.child.seat)
            if started is None:
                place.child.lasted = 0.0  # counts as one more failure: the pauses grow
            else:
                place.child = started
        place.answer()

    async def _renew(self, place: _Place) -> None:
        """Start a process, and stop the one that it takes over from once it is ready."""
        old, noun, logger = place.child, self._kind.noun, self._kind.logger
        seat = place.number if old.seat != place.number else place.number + self._number
        new = await self._try_start(place.number, seat)
        if new is not None and await self._ready_in_time(new):
            place.child, place.leaving = new, old
            old.order(STOP)
            await asyncio.wait([old.ended, new.ended], return_when=asyncio.FIRST_COMPLETED)
            if old.ended.done():
                text = "%s %d: pid %d has taken over from pid %d, which has stopped"
                logger.info(text, noun, place.number, new.pid, old.pid)
        elif new is not None and not self._stopping.is_set():
            text = "%s %d keeps running: the process to take over %s before it was ready; its log says why"
            logger.error(text, noun, place.number, await new.ended)
        place.answer()

    async def _ready_in_time(self, child: Child) -> bool:
        """Wait until it is ready; False if it ended before, or was killed because it took too long."""
        try:
            async with asyncio.timeout(_TAKE_OVER_SECONDS):
                return await child.until_ready()
        except TimeoutError:
            text = "%s (pid %d) was not ready within %g s; killing it"
            self._kind.logger.warning(text, self._kind.noun, child.pid, _TAKE_OVER_SECONDS)
            child.kill()
            return False

    async def _renew_in_turn(self) -> None:
        """Replace one process after another; if one cannot be, the rest of its round keeps running."""
        while True:
            renewal = await self._renewals.get()
            for place, child in renewal.processes:
                if place.child is not child or child.ended.done():  # it is a new one already, or will be
                    continue
                place.answered.clear()
                place.requested.set()
                await place.answered.wait()
                if place.leaving is not None:  # its seat is taken until it has ended
                    await asyncio.wait([place.leaving.ended])
                if place.child is child:
                    if renewal.insists:
                        again = child.wants_replacement.set
                        asyncio.get_running_loop().call_later(_LONGEST_PAUSE, again)
                    break

    async def _try_start(self, number: int, seat: int) -> Child | None:
        """Start a process; None if the system does not let us."""
        try:
            return await self._start(number, seat)
        except OSError as error:
            text = "cannot start %s %d: %s"
            self._kind.logger.warning(text, self._kind.noun, number, error.strerror or error)
            return None

    async def _start(self, number: int, seat: int) -> Child:
        kind = self._kind
        child = await Child.start(kind.command, kind.descriptors, seat, kind.stall_seconds)
        self._children.add(child)

        def ended(_: object) -> None:
            self._children.discard(child)
            kind.ended(seat)

        child.ended.add_done_callback(ended)
        child.order(kind.settings(number, seat))
        if self._stopping.is_set():
            child.order(STOP)
        return child

    def _is_done(self, child: Child) -> bool:
        return self._kind.until_done and child.status == 0

    async def _until_gone(self) -> None:
        while self._children:
            await asyncio.wait([child.ended for child in self._children])


async def _all(work: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Wait until all is done, or raise the first error and cancel the rest."""
    running = [asyncio.ensure_future(one) for one in work]
    try:
        if running:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
            for one in done:
                one.result()
    finally:
        for one in running:
            one.cancel()


async def _first(ended: asyncio.Future[str], *events: asyncio.Event) -> None:
    """Wait for the end or for one of the events."""
    waiting: list[asyncio.Future[Any]] = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait([ended, *waiting], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
