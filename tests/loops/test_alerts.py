"""Alerts, with a real keeper, real stores and a real HTTP server: raised once, delivered at least once."""

import asyncio
import logging
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from time import monotonic, time
from typing import Any

import pytest

from tests.loops.webhook_receiver import SECRET, webhook_receiver
from tests.loops.workers import Watch, eventually, pause, settings, working
from tests.stores.schemas import Schemas
from windlass import App, By, Filter, InvalidOption, NotFound, Page, State, StoreUnavailable
from windlass import _webhook as delivery_module
from windlass._keeper import keeper as keeper_module
from windlass._keeper.alerts import AlertWatch
from windlass._keeper.keeper import Keeper
from windlass._model.alert import Alert, AlertState
from windlass._policy.addresses import parse_networks
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass.alerts import AlertEvent, Turn
from windlass.testing.clock import ManualClock
from windlass.testing.faults import Fault, FaultyStore

HOLD = 300.0
EMPTY = delivery_module.Message("a", b'{"data": {}}')
LOOPBACK = ("127.0.0.1",)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeper_module, "_ALERT_EVERY", 0.02)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def store(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Iterator[Store]:
    match request.param:
        case "memory":
            yield MemoryStore(clock=clock)
        case "sqlite":
            yield SQLiteStore(tmp_path / "windlass.db", clock=clock)
        case _:
            url = request.getfixturevalue("postgres_newest").url
            with Schemas(url, prefix="alerts") as schemas, schemas.lent() as fresh:
                yield fresh(clock)


def an_app(store: Store) -> tuple[App, list[AlertEvent]]:
    """An app with a secret, and what it has been told."""
    app, heard = App(store, webhook_secret=SECRET, allow_addresses=LOOPBACK), []
    app.on_alert(heard.append)

    @app.task(name="shop.pay", queue="money", max_attempts=1)
    async def pay(card: str) -> None:
        raise ValueError(f"the card {card} is no good")

    return app, heard


async def die(app: App, number: int = 1) -> None:
    """So many tasks die."""
    dead = Filter(states=(State.DEAD,))
    before = (await app.store.count(dead, ()))[0].number
    for _ in range(number):
        await app.client.send("shop.pay", {"card": "4111-1111"}, queue="money", max_attempts=1)
    await asyncio.wait_for(app.worker(settings(drain=True)).run(), 10)
    assert (await app.store.count(dead, ()))[0].number == before + number


async def discard(app: App) -> None:
    await app.operator.discard(Filter(states=(State.DEAD,)), by=By(who="a test", why="to recover"))


@asynccontextmanager
async def keeping(app: App, *, store: Store | None = None) -> AsyncIterator[Keeper]:
    keeper = Keeper(
        store or app.store,
        lease=timedelta(seconds=1),
        notifier=app.alert_notifier,
    )
    run = asyncio.create_task(keeper.run())
    try:
        yield keeper
    finally:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


async def alarm_of(app: App, name: str = "money") -> AlertState:
    found = (await app.store.records(AlertState, Page())).items
    return next((alarm for alarm in found if alarm.name == name), AlertState(name=name))


async def raised(app: App) -> bool:
    return (await alarm_of(app)).raised_at is not None


async def all_sent(app: App) -> bool:
    return not (await alarm_of(app)).unsent


async def looks(app: App, keeper: Keeper, number: int = 2) -> None:
    """Wait until the keeper has looked so often: what it was going to do, it has done."""
    before = keeper._chores.turns("alert")
    await eventually(lambda: keeper._chores.turns("alert") > before + number)


class TestRaising:
    async def test_it_is_raised_held_and_cleared(
        self, store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "windlass.alerts")
        app, heard = an_app(store)
        with webhook_receiver() as receiver:
            app.alert("money", queue="money", count=2, webhook=receiver.url + "hook")
            await app.open()
            async with keeping(app) as keeper:
                await die(app)
                await looks(app, keeper)
                assert not await raised(app)
                await die(app)
                await eventually(lambda: len(receiver.messages) == 1)
                await eventually(lambda: all_sent(app))
                await discard(app)
                await looks(app, keeper)
                clock.advance(HOLD - 1)
                await looks(app, keeper)
                assert await raised(app)
                clock.advance(1)
                await eventually(lambda: len(receiver.messages) == 2)
                await eventually(lambda: all_sent(app))
                await looks(app, keeper)
            await app.close()

        assert receiver.states() == ["raised", "cleared"]
        assert [(event.turn, event.number) for event in heard] == [(Turn.RAISED, 2), (Turn.CLEARED, 0)]
        said = [(r.levelname, r.getMessage()) for r in caplog.records if getattr(r, "alert", None)]
        assert said == [
            ("WARNING", "alert money is raised: 2 dead letters in queue money (threshold 2)"),
            ("INFO", "alert money is cleared: 0 dead letters in queue money (threshold 2)"),
        ]

    async def test_a_rate_counts_what_died_within_the_window(self, store: Store, clock: ManualClock) -> None:
        app, heard = an_app(store)
        app.alert("money", type="shop.pay", count=2, window="10m")
        await app.open()
        async with keeping(app) as keeper:
            await die(app)
            clock.advance(601)
            await die(app)
            await looks(app, keeper)
            assert heard == []
            clock.advance(30)
            await die(app)
            await eventually(lambda: heard)
            clock.advance(601)
            await looks(app, keeper)
            clock.advance(HOLD)
            await eventually(lambda: len(heard) == 2)
        await app.close()

        assert [(event.turn, event.number) for event in heard] == [(Turn.RAISED, 2), (Turn.CLEARED, 0)]

    async def test_other_queues_and_types_are_not_counted(self, store: Store) -> None:
        app, heard = an_app(store)
        app.alert("mail", queue="mail")
        app.alert("other", type="shop.mail")
        app.alert("any")
        await app.open()
        async with keeping(app) as keeper:
            await die(app)
            await eventually(lambda: heard)
            await looks(app, keeper)
        await app.close()

        assert [event.alert for event in heard] == ["any"]

    async def test_a_new_leader_does_not_tell_again(self, store: Store) -> None:
        app, heard = an_app(store)
        app.alert("money")
        await app.open()
        await die(app)
        async with keeping(app):
            await eventually(lambda: heard)
        async with keeping(app) as keeper:
            await looks(app, keeper)
        await app.close()

        assert len(heard) == 1

    @pytest.mark.parametrize("when", list(Fault))
    async def test_a_reply_that_is_lost_neither_silences_it_nor_tells_it_twice(
        self, clock: ManualClock, when: Fault
    ) -> None:
        watch = Watch()
        app, heard = an_app(FaultyStore(MemoryStore(clock=clock), watch))
        app.alert("money")
        await app.open()
        await die(app)
        watch.then("put", when, when)
        async with keeping(app) as keeper:
            await eventually(lambda: heard)
            await looks(app, keeper)

        assert [event.turn for event in heard] == [Turn.RAISED]

    async def test_a_lost_reply_is_told_before_what_comes_after_it(self, clock: ManualClock) -> None:
        watch = Watch()
        app, heard = an_app(FaultyStore(MemoryStore(clock=clock), watch))
        app.alert("money", hold=0)
        await app.open()
        await die(app)
        watch.then("put", Fault.AFTER)
        alerts = AlertWatch(app.store, app.alert_notifier, lambda: None)
        with pytest.raises(StoreUnavailable):
            await alerts.evaluate_all()
        await discard(app)
        await alerts.evaluate_all()

        assert [event.turn for event in heard] == [Turn.RAISED, Turn.CLEARED]

    async def test_a_listener_that_raises_keeps_nobody_from_hearing(
        self, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        app, heard = an_app(MemoryStore(clock=clock))
        app.alert_notifier.listeners.insert(0, lambda _: 1 / 0)
        app.alert("money")
        await app.open()
        await die(app)
        async with keeping(app):
            await eventually(lambda: heard)

        assert "a listener raised" in caplog.text

    async def test_a_removed_alert_leaves_no_alarm(self, store: Store) -> None:
        app, heard = an_app(store)
        await app.operator.alerts.add("money")
        await app.open()
        await die(app)
        async with keeping(app):
            await eventually(lambda: heard)
            await app.store.remove(Alert, "money")  # as one who dies before the alarm is removed too
            await eventually(lambda: _gone(app))
        await app.close()

    async def test_a_worker_keeps_watch_by_itself(self, clock: ManualClock) -> None:
        app, heard = an_app(MemoryStore(clock=clock))
        app.alert("money")
        async with working(app, keeper=True, lease=300):
            await app.client.send("shop.pay", {"card": "4111-1111"}, queue="money", max_attempts=1)
            await eventually(lambda: heard)

        assert heard[0].turn is Turn.RAISED


class TestWebhook:
    async def test_a_message_is_signed_and_says_no_secrets(self, clock: ManualClock) -> None:
        app, _ = an_app(MemoryStore(clock=clock))
        with webhook_receiver() as receiver:
            app.alert("money", queue="money", count=2, window="1h", webhook=receiver.url + "hook?key=1")
            await app.open()
            await die(app, 7)
            async with keeping(app):
                await eventually(lambda: receiver.messages)
                await eventually(lambda: all_sent(app))

        (message,) = receiver.messages
        assert (message.path, message.signed) == ("/hook?key=1", True)
        assert message.headers["Content-Type"] == "application/json"
        assert message.headers["webhook-id"] == "raised-20260101T000000000000Z-8d2ac8b58ead9744"
        assert abs(int(message.headers["webhook-timestamp"]) - time()) < 60
        data = message.body.pop("data")
        letters = data.pop("dead_letters")
        assert message.body == {"type": "windlass.alert.raised", "timestamp": "2026-01-01T00:00:00.000Z"}
        assert data == {
            "id": message.headers["webhook-id"],
            "alert": "money",
            "state": "raised",
            "reminder": False,
            "type": None,
            "queue": "money",
            "count": 2,
            "window": 3600.0,
            "number": 7,
            "raised_at": "2026-01-01T00:00:00.000Z",
        }
        newest = await app.operator.find(Filter(), Page(limit=5, newest_first=True))
        assert letters == [
            {"id": task.id, "type": "shop.pay", "queue": "money", "error_type": "ValueError"}
            for task in newest.items
        ]

    async def test_without_a_secret_it_is_sent_unsigned_and_that_is_said(
        self, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        app, _ = an_app(MemoryStore(clock=clock))
        app.alert_notifier.secret = None
        with webhook_receiver() as receiver:
            app.alert("money", webhook=receiver.url)
            await app.open()
            await die(app)
            async with keeping(app):
                await eventually(lambda: receiver.messages)

        assert not receiver.messages[0].signed
        assert "webhook-signature" not in receiver.messages[0].headers
        assert receiver.ids() == [receiver.messages[0].body["data"]["id"]]
        assert "sent unsigned: set WINDLASS_WEBHOOK_SECRET" in caplog.text

    @pytest.mark.parametrize("status", [500, 404, 429, 302, 103])
    async def test_what_is_not_taken_is_sent_again_with_the_same_id(
        self, store: Store, clock: ManualClock, status: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        app, heard = an_app(store)
        with webhook_receiver(status, status) as receiver:
            app.alert("money", webhook=receiver.url + "hunter2?key=hunter2")
            await app.open()
            await die(app)
            async with keeping(app) as keeper:
                for number in (1, 2, 3):
                    await eventually(lambda: len(receiver.messages) >= number)  # noqa: B023
                    await looks(app, keeper, 3)
                    assert len(receiver.messages) == number  # not before its time
                    clock.advance(15)
                await eventually(lambda: all_sent(app))
            await app.close()

        assert receiver.states() == ["raised"] * 3  # and no redirect was followed
        assert len({*receiver.ids()}) == 1
        assert len(heard) == 1
        assert f"rejected the notice that it is raised ({status}" in caplog.text
        assert "hunter2" not in caplog.text

    async def test_one_that_is_gone_is_told_no_more_of_this_but_of_the_next(
        self, store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        app, heard = an_app(store)
        with webhook_receiver(410) as receiver:
            app.alert("money", hold=0, webhook=receiver.url + "hunter2")
            await app.open()
            await die(app)
            async with keeping(app) as keeper:
                await eventually(lambda: "(410 Gone); not retrying" in caplog.text)
                await eventually(lambda: all_sent(app))
                clock.advance(HOLD)
                await looks(app, keeper)
                assert receiver.states() == ["raised"]
                await discard(app)
                await eventually(lambda: len(receiver.messages) == 2)
                await eventually(lambda: all_sent(app))
            await app.close()

        assert receiver.states() == ["raised", "cleared"]
        assert len(heard) == 2
        assert "hunter2" not in caplog.text

    async def test_what_one_place_did_not_want_is_sent_to_the_new_one(self, clock: ManualClock) -> None:
        app, _ = an_app(MemoryStore(clock=clock))
        with webhook_receiver(410, slow=True) as old, webhook_receiver() as new:
            await app.operator.alerts.add("money", webhook=old.url)
            await app.open()
            await die(app)
            async with keeping(app) as keeper:
                await eventually(lambda: old.messages)
                await app.operator.alerts.add("money", webhook=new.url)
                old.gate.set()
                await looks(app, keeper)
                await eventually(lambda: _tried(app))
                clock.advance(15)
                await eventually(lambda: all_sent(app))

        assert (old.states(), new.states()) == (["raised"], ["raised"])
        assert old.ids() == new.ids()

    async def test_while_a_secret_is_being_changed_both_signatures_are_sent(self, clock: ManualClock) -> None:
        app, _ = an_app(MemoryStore(clock=clock))
        app.alert_notifier.secret = f"the-one-that-will-follow-it,{SECRET}"
        with webhook_receiver() as receiver:
            app.alert("money", webhook=receiver.url)
            await app.open()
            await die(app)
            async with keeping(app):
                await eventually(lambda: receiver.messages)

        assert receiver.messages[0].signed
        assert receiver.messages[0].headers["webhook-signature"].count("v1,") == 2

    async def test_a_server_that_is_down_is_told_when_it_is_back(
        self, store: Store, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        app, _ = an_app(store)
        with socket.socket() as taken:  # bound and not listening: a connection is refused
            taken.bind(("127.0.0.1", 0))
            await app.operator.alerts.add("money", webhook=f"http://127.0.0.1:{taken.getsockname()[1]}/")
            await app.open()
            await die(app)
            async with keeping(app):
                await eventually(lambda: "Connection refused" in caplog.text)
        with webhook_receiver() as receiver:  # another leader, another place
            await app.operator.alerts.add("money", webhook=receiver.url)
            clock.advance(10)
            async with keeping(app):
                await eventually(lambda: receiver.messages)
                await eventually(lambda: all_sent(app))
        await app.close()

        assert receiver.states() == ["raised"]

    async def test_a_beginning_is_told_before_its_end(self, store: Store, clock: ManualClock) -> None:
        app, _ = an_app(store)
        with webhook_receiver(500, 500) as receiver:
            app.alert("money", hold=0, webhook=receiver.url)
            await app.open()
            await die(app)
            async with keeping(app):
                await eventually(lambda: receiver.messages)
                await discard(app)
                await eventually(lambda: _waiting(app, 2))
                while len(receiver.messages) < 4:
                    clock.advance(1)
                    await pause(0.01)
                await eventually(lambda: all_sent(app))
            await app.close()

        assert receiver.states() == ["raised", "raised", "raised", "cleared"]

    async def test_it_is_given_up_after_a_day(
        self, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        app, _ = an_app(MemoryStore(clock=clock))
        with webhook_receiver(*[500] * 100) as receiver:
            app.alert("money", webhook=receiver.url)
            await app.open()
            await die(app)
            async with keeping(app):
                await eventually(lambda: "retrying in" in caplog.text)
                await discard(app)
                clock.advance(timedelta(days=1))
                await eventually(lambda: "giving up after 2 tries" in caplog.text)
                await eventually(lambda: all_sent(app))

    async def test_a_leader_killed_before_it_noted_the_answer_costs_a_repeat_with_the_same_id(
        self, clock: ManualClock
    ) -> None:
        inner, watch = MemoryStore(clock=clock), Watch()
        app, heard = an_app(inner)
        with webhook_receiver(slow=True) as receiver:
            app.alert("money", webhook=receiver.url)
            await app.open()
            await die(app)
            async with keeping(app, store=FaultyStore(inner, watch)):
                await eventually(lambda: receiver.messages)
                watch.down |= {"put"}  # from here on it can write nothing, as if it were dead
                receiver.gate.set()
                await eventually(lambda: watch.calls["put"] >= 2)
            clock.advance(keeper_module.LEAD_FOR)  # the dead do not resign
            async with keeping(app):
                await eventually(lambda: all_sent(app))

        assert len(receiver.messages) >= 2
        assert len({*receiver.ids()}) == 1
        assert len(heard) == 1


class TestPatience:
    async def test_a_slow_webhook_holds_nothing_up(
        self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(delivery_module, "DEADLINE", 0.5)
        app, heard = an_app(MemoryStore(clock=clock))
        with webhook_receiver(slow=True) as slow, webhook_receiver() as quick:
            app.alert("money", webhook=slow.url)
            app.alert("quick", webhook=quick.url)
            await app.open()
            await die(app)
            async with keeping(app) as keeper:
                await eventually(lambda: slow.messages)
                await eventually(lambda: quick.messages)
                await looks(app, keeper, 5)  # goes on while the slow one keeps silent
                handle = await app.client.send("shop.later", delay=10)
                clock.advance(10)
                await eventually(lambda: _in_state(handle, State.READY))
                await eventually(lambda: "no response within 0.5 s" in caplog.text)
                slow.gate.set()
                clock.advance(10)
                await eventually(lambda: all_sent(app))

        assert len({*slow.ids()}) == 1
        assert len(heard) == 2

    async def test_a_keeper_that_stops_does_not_wait_for_a_webhook(self, clock: ManualClock) -> None:
        app, _ = an_app(MemoryStore(clock=clock))
        with webhook_receiver(slow=True) as receiver:
            app.alert("money", webhook=receiver.url)
            await app.open()
            await die(app)
            async with keeping(app):
                await eventually(lambda: receiver.messages)
                begun = monotonic()
            assert monotonic() - begun < 5

        assert len((await alarm_of(app)).unsent) == 1

    async def test_an_answer_is_noted_without_waiting_for_the_next_look(
        self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keeper_module, "_ALERT_EVERY", 3600.0)
        app, _ = an_app(MemoryStore(clock=clock))
        with webhook_receiver() as receiver:
            app.alert("money", webhook=receiver.url)
            await app.open()
            await die(app)
            async with keeping(app):
                await eventually(lambda: receiver.messages)
                await eventually(lambda: all_sent(app))

    @pytest.mark.parametrize("turns", range(5))
    async def test_a_stop_that_meets_an_answer_is_not_forgotten(self, turns: int) -> None:
        app, _ = an_app(MemoryStore())
        async with keeping(app) as keeper:
            await eventually(lambda: keeper.leads)
            keeper._on_sent()
            for _ in range(turns):
                await asyncio.sleep(0)

    async def test_a_server_that_dribbles_keeps_no_thread(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(delivery_module, "DEADLINE", 0.2)
        given_up = threading.Event()

        def dribble(listening: socket.socket) -> None:
            connected, _ = listening.accept()
            with connected, suppress(OSError):
                while not given_up.wait(0.02):
                    connected.sendall(b"x")

        with socket.create_server(("127.0.0.1", 0)) as listening:
            dribbling = asyncio.create_task(asyncio.to_thread(dribble, listening))
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
            fetcher = delivery_module.new_fetcher(parse_networks(LOOPBACK))
            answer = await delivery_module.deliver(url, EMPTY, None, fetcher)
            try:
                await eventually(lambda: not fetcher.running, within=3)
            finally:
                given_up.set()
                await dribbling

        assert (answer.taken, answer.reason) == (False, "no response within 0.2 s")

    async def test_no_more_than_a_few_are_told_at_once(
        self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("windlass._keeper.alerts.MAX_DELIVERIES", 2)
        app, _ = an_app(MemoryStore(clock=clock))
        with webhook_receiver(slow=True) as receiver:
            for number in range(5):
                app.alert(f"money-{number}", webhook=receiver.url)
            await app.open()
            await die(app)
            async with keeping(app) as keeper:
                await eventually(lambda: len(receiver.messages) == 2)
                await looks(app, keeper, 5)
                assert len(receiver.messages) == 2
                receiver.gate.set()
                await eventually(lambda: len(receiver.messages) == 5)


class TestDeclaring:
    async def test_what_an_operator_changes_stands_until_the_declaration_changes(self, store: Store) -> None:
        app, _ = an_app(store)
        app.alert("money", count=3)
        await app.open()
        await app.operator.alerts.add("money", count=30)
        await app.open()
        kept = await app.operator.alerts.get("money")
        again, _ = an_app(store)
        again.alert("money", count=4)
        await again.open()

        assert kept.alert.count == 30
        assert (await again.operator.alerts.get("money")).alert.count == 4
        await app.close()

    def test_one_name_is_declared_once(self) -> None:
        app = App("memory://")
        app.alert("money", count=3)
        app.alert("money", count=3)

        with pytest.raises(InvalidOption, match="already declared on this app"):
            app.alert("money", count=4)

    def test_a_type_may_be_given_itself(self) -> None:
        app = App("memory://")

        @app.task(name="shop.mail")
        async def mail() -> None: ...

        app.alert("mail", type=mail)
        app.setup()

        (status,) = app.sync_operator.alerts.list()
        assert status.alert.type == "shop.mail"

    def test_a_secret_that_is_too_short_is_refused_and_not_repeated(self) -> None:
        with pytest.raises(InvalidOption) as refused:
            App("memory://", webhook_secret="hunter2")

        assert "hunter2" not in str(refused.value)


class TestOperating:
    def test_alerts_are_added_seen_tried_and_removed_without_a_loop(self) -> None:
        alerts = App("memory://").sync_operator.alerts
        with webhook_receiver(204, 500) as receiver:
            alerts.add("money", count=2, window="5m", webhook=receiver.url)
            (status,) = alerts.list()
            answers = [alerts.test("money", secret=one, allow_addresses=LOOPBACK) for one in (SECRET, None)]
            alerts.remove("money")

        assert (status.alert.count, status.number, status.raised) == (2, 0, False)
        assert [(answer.taken, answer.status) for answer in answers] == [(True, 204), (False, 500)]
        assert [(m.body["type"], m.signed) for m in receiver.messages] == [
            ("windlass.alert.test", True),
            ("windlass.alert.test", False),
        ]
        assert alerts.list() == []
        with pytest.raises(NotFound):
            alerts.get("money")
        with pytest.raises(NotFound):
            alerts.remove("money")

    def test_an_alert_without_a_webhook_cannot_be_tried(self) -> None:
        alerts = App("memory://").sync_operator.alerts
        alerts.add("money")

        with pytest.raises(InvalidOption, match="no webhook"):
            alerts.test("money")

    def test_it_is_not_tried_with_a_secret_that_is_none(self) -> None:
        alerts = App("memory://").sync_operator.alerts
        with webhook_receiver() as receiver:
            alerts.add("money", webhook=receiver.url)
            with pytest.raises(InvalidOption, match="24 to 64 bytes"):
                alerts.test("money", secret="hunter2")

        assert receiver.messages == []

    def test_what_is_wrong_is_refused_and_changes_nothing(self) -> None:
        alerts = App("memory://").sync_operator.alerts
        with pytest.raises(InvalidOption):
            alerts.add("money", webhook="ftp://a.example/")

        assert alerts.list() == []


async def _gone(app: App) -> bool:
    return not (await app.store.records(AlertState, Page())).items


async def _waiting(app: App, number: int) -> bool:
    return len((await alarm_of(app)).unsent) == number


async def _tried(app: App) -> bool:
    return all(news.tries for news in (await alarm_of(app)).unsent)


async def _in_state(handle: Any, state: State) -> bool:
    return (await handle.state()) is state
