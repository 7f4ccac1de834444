"""The permissions of docs/least-privilege.md on a real NATS server: enough for each user, and no more."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import nats
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from tests.docs.blocks import DOCS, blocks_of
from tests.loops.workers import drained, eventually, tasks
from tests.security.probes import ENOUGH
from tests.servers.nats import Nats
from tests.servers.owners import Owners
from windlass import App, Filter, State
from windlass._store.messages import REQUESTS, AboutRequest
from windlass._stores.jetstream.reign import OwnerSettings
from windlass._stores.jetstream.wire import decode_answers, encode_request, encode_requests
from windlass.errors import StoreError, StoreUnavailable

USERS = ("owner", "worker", "producer", "monitor")
QUICK = OwnerSettings(beat=0.1, silence=0.5, snapshot_bytes=1000)  # so that it needs snapshots, too


class Guarded(Nats):
    """A server with the users of the page, and one who sees everything."""

    def _settings(self) -> str:
        (users,) = (one.text for one in blocks_of(DOCS / "least-privilege.md") if one.language == "conf")
        for name in USERS:
            users = users.replace(f"${name.upper()}_PASSWORD", name)
        all_of_them = users.replace("users: [", "users: [ { user: all, password: all }", 1)
        return super()._settings() + all_of_them

    def url_of(self, name: str, **options: str) -> str:
        inbox = "" if name == "owner" else f"&inbox=shop_{name}"
        return f"nats://shop_{name}:{name}@127.0.0.1:{self.port}/shop?replicas=1{inbox}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("nats")
    with Guarded.start(folder) as server, Owners() as owners:
        owner = owners.start(server.url_of("owner"), folder, settings=QUICK)
        yield server
        owners.stop(owner)  # and not its streams with it, which it may not delete


def program(url: str) -> App:
    app = App(url)

    @app.task(name="pay", secret=["card"])
    async def pay(card: str) -> str:
        return f"paid with {card}"

    return app


@asynccontextmanager
async def connected(server: Guarded, user: str, password: str) -> AsyncIterator[tuple[Client, list[str]]]:
    """A connection without windlass, and what the server has refused it so far."""
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error).lower())

    client = await nats.connect(
        f"nats://127.0.0.1:{server.port}", user=user, password=password, error_cb=note
    )
    try:
        yield client, refused
    finally:
        await client.close()


async def test_each_user_can_do_its_work(server: Guarded) -> None:
    producer, worker, monitor = (App(server.url_of(name)) for name in ("producer", "worker", "monitor"))
    handles = [await producer.client.send("pay", {"card": f"number {n}"}) for n in range(3)]
    running = program(server.url_of("worker"))
    await drained(running, keeper=True)

    ended = await tasks(worker, State.COMPLETED)
    assert {task.id for task in ended} >= {handle.id for handle in handles}
    assert await monitor.operator.count(Filter())
    assert not [one for one in await monitor.operator.check() if "permission" in one.message.lower()]
    for app in (producer, worker, running, monitor):
        await app.close()


async def test_an_owner_that_writes_snapshots_needs_no_more(server: Guarded, tmp_path: Path) -> None:
    """Another one can stand by from a snapshot, and take over."""
    app = App(server.url_of("worker"))
    with Owners() as owners:
        async with connected(server, "all", "all") as (client, _):
            for _ in range(60):
                await app.client.send("later", {"text": "x" * 100}, delay=3600)
            stream = client.jetstream()

            async def has_snapshot() -> bool:
                return (await stream.stream_info("WL_shop_BASE")).state.messages > 0

            await eventually(has_snapshot, within=30)
            second = await asyncio.to_thread(owners.stand_by, server.url_of("owner"), tmp_path)
            await eventually(lambda: second._follows, within=30)
        owners.stop(second)
    await app.close()
    assert "Violation" not in said_of(server, "shop_owner")


FOREIGN = ("WL_other", "WL_other_BASE", "KV_other")
OWN = ("WL_shop", "WL_shop_BASE")
PUBLISHED = (
    *("shop.log", "shop.base.x.manifest", "shop.new", "shop.wake.all", "shop.owners", "other.ask.enqueue"),
    *("_INBOX.shop_worker.x", "_INBOX.x", "$SYS.REQ.SERVER.PING"),
    *(f"$JS.API.STREAM.{verb}.{name}" for verb in ("DELETE", "PURGE", "INFO", "SNAPSHOT") for name in OWN),
    *(f"$JS.API.STREAM.MSG.{verb}.WL_shop" for verb in ("GET", "DELETE")),
    *("$JS.API.CONSUMER.CREATE.WL_shop", "$JS.API.STREAM.LEADER.STEPDOWN.WL_shop"),
    *(f"$JS.API.CONSUMER.{verb}.WL_shop.x" for verb in ("DURABLE.CREATE", "MSG.NEXT", "DELETE", "INFO")),
    *("$JS.API.STREAM.CREATE.WL_new", "$JS.API.STREAM.UPDATE.WL_shop", "$JS.API.STREAM.LIST"),
    *("$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.LIST.WL_shop", "$JS.API.DIRECT.GET.WL_shop"),
    *("$JS.ACK.WL_shop.x.1.1.1.1.1", "$KV.shop.x", "$O.shop.M.x", "shop.ask", "shop.ask.enqueue.x"),
    *("shop", "shop.wake", "other.new"),
)
HEARD = (
    *(">", "_INBOX.>", "_INBOX.shop_worker.>", "_INBOX.*.*"),
    *("shop.>", "shop.ask.*", "shop.ask.enqueue", "shop.log"),
)
NOT_FOR_OWNERS = (
    *(f"$JS.API.STREAM.{verb}.{name}" for verb in ("CREATE", "DELETE", "PURGE", "INFO") for name in FOREIGN),
    *(f"$JS.API.STREAM.{verb}.{name}" for verb in ("DELETE", "SNAPSHOT", "UPDATE") for name in OWN),
    *("$JS.API.INFO", "$SYS.REQ.SERVER.PING", "other.ask.enqueue", "other.log", "shop.ask.enqueue"),
    *(f"other.{name}" for name in ("base.x", "new", "owners", "wake.all", "ask.about")),
    *("$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.CONSUMER.CREATE.WL_other.x"),
    *("$JS.API.CONSUMER.DELETE.WL_shop.x", "$JS.API.STREAM.MSG.DELETE.WL_shop", "$KV.other.x", "shop"),
)
ALLOWED = {"producer": {"about", "enqueue", "records"}, "monitor": {"about", "count", "check", "records"}}


def said_of(server: Guarded, user: str) -> str:
    """What the server's log has of a user."""
    return "\n".join(line for line in server.log.read_text().splitlines() if user in line)


def forbidden() -> Iterator[tuple[str, str, str]]:
    """Who must not publish or subscribe to what."""
    for user in ("producer", "monitor"):
        verbs = ALLOWED[user]
        yield from ((user, "publish", f"shop.ask.{verb}") for verb in REQUESTS if verb not in verbs)
        yield user, "subscribe", "shop.wake.>"
    for user in ("producer", "monitor", "worker"):
        yield from ((user, "publish", subject) for subject in PUBLISHED)
        own = f"_INBOX.shop_{user}.>"
        yield from ((user, "subscribe", subject) for subject in HEARD if subject != own)
    yield from (("owner", "publish", subject) for subject in NOT_FOR_OWNERS)
    yield from (("owner", "subscribe", subject) for subject in (">", "other.ask.*", "shop.log", "$SYS.>"))


@pytest.mark.parametrize("user", USERS)
async def test_everything_else_is_refused(server: Guarded, user: str) -> None:
    probes = [(verb, subject) for who, verb, subject in forbidden() if who == user]
    async with connected(server, f"shop_{user}", user) as (client, refused):
        for verb, subject in probes:
            if verb == "publish":
                await client.publish(subject, b"x")
            else:
                await client.subscribe(subject)
        await client.flush()
        await eventually(lambda: len(refused) >= len(probes))

    for verb, subject in probes:
        kind = "publish" if verb == "publish" else "subscription"
        assert any(f'for {kind} to "{subject.lower()}"' in one for one in refused), (verb, subject)
    assert said_of(server, f"shop_{user}").count("Violation") >= len(probes)


def test_there_are_enough_probes() -> None:
    assert len({*forbidden()}) >= ENOUGH


# -- by way of the owner -----------------------------------------------------------------------------


def is_answer(message: Msg) -> bool:
    """Whether an owner said it to a client, and not NATS or another owner."""
    with suppress(StoreUnavailable):
        return bool(decode_answers(message.data, 1))
    return False


@pytest.mark.parametrize(
    "reply",
    [
        *("shop.log", "shop.base.x.manifest", "shop.new", "shop.owners", "shop.wake.all", "shop.ask.settle"),
        *("$JS.API.STREAM.PURGE.WL_shop", "$JS.API.STREAM.INFO.WL_shop", "shop.log.x", "_INBOXES.x", "_INBO"),
    ],
)
async def test_an_owner_answers_to_inboxes_only(server: Guarded, reply: str) -> None:
    """Or who may ask could publish what only owners may: to the log, in which that takes a place."""
    async with connected(server, "all", "all") as (witness, _):
        heard: list[str] = []

        async def hear(message: Msg) -> None:
            if is_answer(message):
                heard.append(message.subject)

        await witness.subscribe(reply, cb=hear)
        await witness.flush()
        async with connected(server, "shop_producer", "producer") as (client, refused):
            asked = encode_requests([encode_request(AboutRequest())])
            inbox = await client.subscribe("_INBOX.shop_producer.*")
            await client.publish("shop.ask.about", asked, reply=reply)
            await client.publish("shop.ask.about", asked, reply="_INBOX.shop_producer.1")
            assert (await inbox.next_msg(timeout=20)).data  # it was asked after the first
            await client.publish("shop.ask.about", asked, reply="_INBOX.shop_producer.2")
            assert (await inbox.next_msg(timeout=20)).data
            assert refused == []
        await witness.flush()
        assert heard == []


async def test_the_answers_to_others_cannot_be_heard(server: Guarded) -> None:
    """A worker's claims have payloads; its inbox is its own, and nobody guesses it."""
    app = App(server.url_of("worker"))
    async with connected(server, "all", "all") as (witness, _):
        heard: list[str] = []

        async def hear(message: Msg) -> None:
            if is_answer(message):
                heard.append(message.subject)

        await witness.subscribe("_INBOX.>", cb=hear)
        await witness.flush()
        await app.operator.count(Filter())
        await eventually(lambda: heard)
        assert {subject.split(".")[1] for subject in heard} == {"shop_worker"}
    await app.close()


async def test_a_user_without_its_inbox_is_told(server: Guarded) -> None:
    app = App(server.url_of("worker").replace("&inbox=shop_worker", ""))
    with pytest.raises(StoreError, match=r"lacks a permission .*_inbox"):
        await app.operator.count(Filter())
    await app.close()
