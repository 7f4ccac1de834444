"""What NATS refuses: users whose credentials have expired, permissions that are missing, a full server."""

import asyncio
import errno
import json
import logging
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.loops.workers import eventually
from tests.servers.nats import Nats
from tests.servers.owners import Owners
from windlass._model.filter import Filter
from windlass._stores.jetstream import JetStreamStore, owner, stream
from windlass._stores.jetstream.follower import Follower
from windlass.errors import InvalidOption, StoreError, StoreUnavailable
from windlass.testing.conformance.steps import a_task, worker_on

WITHIN = 40.0
DOCS = Path(__file__).parents[3] / "docs" / "jetstream.md"

PEOPLE = """
authorization {
  users: [
    { user: owner, password: %s }
    { user: reader, password: two, permissions: { publish: ["*.ask.count", "*.ask.about"], subscribe: ">" } }
  ]
}
"""


class Guarded(Nats):
    """A server that knows its users."""

    extra = PEOPLE % "one"

    def _settings(self) -> str:
        return super()._settings() + self.extra

    def reload(self, extra: str) -> None:
        self.extra, self.loaded = extra, self.ask("varz")["config_load_time"]
        (self.home / "nats.conf").write_text(self._settings())
        os.kill(self.pid, signal.SIGHUP)

    def url_of(self, login: str) -> str:
        return f"nats://{login}@127.0.0.1:{self.port}/shop?replicas=1"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    with Guarded.start(tmp_path) as server:
        yield server


async def test_credentials_that_expire_are_used_again_once_they_are_valid(
    guarded: Guarded, owners: Owners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NATS closes such connections for good: owners and handles must make new ones by themselves."""
    monkeypatch.setattr(owner, "_MEND_SECONDS", 0.2)
    monkeypatch.setattr("windlass._stores.jetstream.client.CONNECT_SECONDS", 0.5)
    owning = owners.start(guarded.url_of("owner:one"), tmp_path)
    store = JetStreamStore.from_url(guarded.url_of("owner:one"))
    await store.enqueue([a_task()])
    line = await store._lines.line()
    listening = store.wakes(["default"])
    await anext(listening)

    guarded.reload(PEOPLE % "other")
    await eventually(lambda: line.is_closed and not owning.owns.is_set(), within=WITHIN)
    async for _ in listening:
        continue  # It ends.
    with pytest.raises(StoreUnavailable, match="cannot connect to NATS"):
        await store.count(Filter(), ())

    async def enqueued() -> bool:
        with suppress(StoreUnavailable):  # until the server has read its settings
            await store.enqueue([a_task()])
            return True
        return False

    guarded.reload(PEOPLE % "one")
    assert await eventually(enqueued, within=WITHIN)
    await store.close()
    owners.clear()


async def test_a_missing_permission_is_named_at_once(
    guarded: Guarded, owners: Owners, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._stores.jetstream.client.DEADLINE_SECONDS", 1000.0)
    owners.start(guarded.url_of("owner:one"), tmp_path)
    store = JetStreamStore.from_url(guarded.url_of("reader:two"))
    await store.count(Filter(), ())

    with pytest.raises(StoreError, match=r"lacks a permission .*shop\.ask\.enqueue"):
        await store.enqueue([a_task()])
    await store.close()
    owners.clear()


async def test_an_owner_says_why_nothing_can_be_appended(
    guarded: Guarded,
    owners: Owners,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(stream, "WARN_SECONDS", 0.2)
    owners.start(guarded.url_of("owner:one"), tmp_path)
    with caplog.at_level(logging.WARNING, "windlass.owner"):
        guarded.freeze()
        try:
            await eventually(lambda: "cannot append to the stream WL_shop" in caplog.text, within=WITHIN)
        finally:
            guarded.thaw()
    owners.clear()


async def test_a_file_of_credentials_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = tmp_path / "user.creds"
    store = JetStreamStore.from_url(f"nats://127.0.0.1/shop?creds={missing}")
    for module, said in (("sys", f"cannot read {missing}"), ("no_such_module", "pip install 'nats-py")):
        monkeypatch.setattr("windlass._stores.jetstream.client.CREDS_MODULE", module)
        with pytest.raises(InvalidOption, match=re.escape(said)):
            await store.count(Filter(), ())
        await store.close()


async def test_a_process_that_cannot_keep_a_copy_does_not_stand_by(
    guarded: Guarded,
    owners: Owners,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else the owner would hand the store over to it when its own disk is full."""
    url = guarded.url_of("owner:one")
    monkeypatch.setattr(owner, "_MEND_SECONDS", 1000.0)
    owners.start(url, tmp_path)
    store = JetStreamStore.from_url(url)

    async def follow(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    async def found() -> dict[str, str]:
        return {one.subject: one.message for one in await store.check()}

    monkeypatch.setattr(Follower, "follow", follow)
    second = owners.stand_by(url, tmp_path)
    await eventually(lambda: f"{second.name} cannot keep a copy" in caplog.text, within=WITHIN)

    assert "no process stands by" in (await found())["owner"]
    await store.close()
    owners.clear()


def documented(who: str) -> str:
    """The permissions that docs/jetstream.md says these need, as settings of a server for a store `shop`."""
    (row,) = (line for line in DOCS.read_text().splitlines() if line.startswith(f"| {who} |"))
    publish, subscribe = (re.findall(r"`([^`]+)`", cell) for cell in row.split("|")[2:4])
    subjects = {"publish": publish, "subscribe": subscribe}
    lists = (f"{verb}: {json.dumps(found)}" for verb, found in subjects.items())
    return "{ " + ", ".join(lists).replace('"name.', '"shop.') + " }"


async def test_the_documented_permissions_are_enough(
    guarded: Guarded, owners: Owners, tmp_path: Path
) -> None:
    users = {"owner": documented("owners and standbys"), "user": documented("everyone else")}
    lines = (f"{{ user: {name}, password: one, permissions: {rights} }}" for name, rights in users.items())
    guarded.reload("authorization { users: [\n" + "\n".join(lines) + "\n] }\n")
    await eventually(lambda: guarded.ask("varz").get("config_load_time") != guarded.loaded, within=WITHIN)
    first = owners.start(guarded.url_of("owner:one"), tmp_path)
    second = owners.stand_by(guarded.url_of("owner:one"), tmp_path)
    store = JetStreamStore.from_url(guarded.url_of("user:one"))
    listening = store.wakes(["default"])
    await anext(listening)
    await store.enqueue([a_task()])
    assert await anext(listening)
    owners.stop(first)

    worker = await worker_on(store)
    assert len(await worker.claim(1)) == 1
    assert second.owns.is_set()
    await listening.aclose()
    await store.close()


async def test_a_server_without_tls_gets_no_password() -> None:
    received: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576}\r\n')
        received.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    store = JetStreamStore.from_url(f"nats+tls://app:s3cret@127.0.0.1:{port}/shop")
    with pytest.raises(StoreUnavailable, match="does not require TLS"):
        await store.count(Filter(), ())
    await store.close()
    server.close()
    await eventually(lambda: bool(received))
    assert b"".join(received) == b""


async def test_a_wrong_password_is_reported(guarded: Guarded) -> None:
    store = JetStreamStore.from_url(guarded.url_of("owner:wrong"))
    with pytest.raises(StoreUnavailable, match=r"Authorization Violation.*; check user and password"):
        await store.count(Filter(), ())
    await store.close()
