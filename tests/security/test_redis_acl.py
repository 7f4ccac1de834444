"""The user of docs/least-privilege.md on a real Redis: enough for all that a store does, and no more."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import redis
from redis.exceptions import NoPermissionError

from tests.docs.blocks import DOCS, blocks_of
from tests.examples import sample
from tests.security.whole_program import use_everything
from tests.servers.redis import DURABLE, Program, Redis
from tests.servers.redis_cluster import command
from windlass import App, Filter
from windlass._store.protocol import Durability
from windlass._stores.redis import RedisStore
from windlass.errors import StoreError

RARE = {
    *("ltrim", "setrange", "zscan"),  # of many tasks
    *("wait", "select"),  # by the URL: `replicas`, and the number of a database
}
REFUSED = r"(?i)permission|not allowed from script|can't (run|access)"
OTHERS = ("other", "{other}:t:1", "{windlass}:ids", "{shop}x", "shop:ids", "{shop", "x{shop}:ids")


@pytest.fixture(scope="module", params=sample(["valkey"], ["redis"]))
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    program: Program = request.param
    with Redis.start(tmp_path_factory.mktemp("redis"), program=program, settings=DURABLE) as server:
        command(server, *documented())
        yield server


def documented() -> list[str]:
    """The statement of the page, as words."""
    (text,) = (one.text for one in blocks_of(DOCS / "least-privilege.md") if one.language == "redis")
    return text.replace("\\\n", " ").split()


def url_of(server: Redis) -> str:
    return f"redis://windlass_shop:PASSWORD@127.0.0.1:{server.port}/0?name=shop"


def allowed() -> set[str]:
    return {word[1:] for word in documented() if word.startswith("+")}


def all_commands(server: Redis) -> list[str]:
    """Every command of the server, and every subcommand as `name|sub`."""
    found: list[str] = []
    for name, _, _, _, _, _, _, _, _, inner in command(server, "COMMAND"):
        subcommands = [one[0].decode() for one in inner]
        found += subcommands or [name.decode()]
    return found


async def test_it_is_enough_and_each_command_is_needed(server: Redis) -> None:
    command(server, "CONFIG RESETSTAT")
    await use_everything(lambda: RedisStore.from_url(url_of(server)))

    text: Any = command(server, "INFO", "commandstats")
    used = {line.split(":")[0].removeprefix("cmdstat_") for line in text.decode().splitlines()[1:]}
    denied = [one for one in command(server, "ACL LOG") if one[1:2] != [0]]
    assert {item[item.index(b"object") + 1] for item in denied} <= {b"config|get", b"client|setinfo"}
    assert allowed() - used <= RARE


async def test_it_says_what_it_cannot_see(server: Redis) -> None:
    store = RedisStore.from_url(url_of(server))
    await store.open()
    findings = {one.subject: one.message for one in await store.check()}
    assert store.promise.durability is Durability.RELAXED
    assert "maxmemory-policy is not shown" in findings["eviction"]
    await store.close()

    command(server, "ACL SETUSER", "windlass_shop", "+config|get")
    store = RedisStore.from_url(url_of(server))
    await store.open()
    assert store.promise.durability is Durability.DURABLE
    await store.close()
    command(server, *documented())


def test_no_other_command_is_allowed(server: Redis) -> None:
    """By the server's own answer: whatever a version of it adds is refused, too."""
    free = {"auth", "hello", "quit", "reset"}  # they have no privileges
    others = [one for one in all_commands(server) if one not in allowed() | free]
    with redis.Redis(port=server.port) as client:
        said = {one: dry_run(client, *one.split("|")) for one in others}

    assert len(others) > 150
    assert [one for one in others if "no permissions" not in said[one]] == []


def dry_run(client: "redis.Redis[Any]", *words: str) -> str:
    """What the server would say; with as many arguments as it takes before it looks at permissions."""
    for number in range(8):
        try:
            arguments = ["{shop}:x"] * number
            said: Any = client.execute_command("ACL DRYRUN", "windlass_shop", *words, *arguments)
        except redis.ResponseError as error:
            if "number of arguments" in str(error):
                continue
            return str(error)
        return str(said.decode())
    raise AssertionError(words)


READS = {"get": (), "smembers": (), "hgetall": (), "zrange": ("0", "-1"), "lrange": ("0", "-1")}
WRITES = {"set": ("x",), "del": (), "hset": ("a", "b"), "sadd": ("a",), "zadd": ("0", "a"), "rpush": ("a",)}


def test_no_other_key_or_channel_is_reached(server: Redis) -> None:
    with as_user(server) as client:
        for (name, rest), key in product([*(READS | WRITES).items()], OTHERS):
            with pytest.raises(NoPermissionError):
                client.execute_command(name, key, *rest)
            call = ",".join(f"'{one}'" for one in (name, key, *rest))
            with pytest.raises(redis.ResponseError, match=REFUSED):
                client.eval(f"return redis.call({call})", 1, "{shop}:x")
        for name, key in product(("publish", "subscribe"), OTHERS):
            with pytest.raises(NoPermissionError):
                client.execute_command(name, key, *["x"][: name == "publish"])
        assert client.execute_command("set", "{shop}:mine", "x")
        assert client.eval("return redis.call('get','{shop}:mine')", 1, "{shop}:x") == b"x"


SCRIPTS = (
    *("CONFIG','GET','*", "FLUSHDB", "FLUSHALL", "KEYS','*", "ACL','LIST", "SCAN','0", "DBSIZE", "RANDOMKEY"),
    *("RENAME','{shop}:a','other", "COPY','{shop}:a','other", "SORT','{shop}:a", "DUMP','{shop}:a"),
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_script_gets_further(server: Redis, script: str) -> None:
    refused = pytest.raises(redis.ResponseError, match=REFUSED)
    with as_user(server) as client, refused:
        client.eval(f"return redis.call('{script}')", 0)


def as_user(server: Redis) -> "redis.Redis[Any]":
    return redis.Redis(port=server.port, username="windlass_shop", password="PASSWORD")


async def test_who_lacks_a_permission_is_told_which(server: Redis) -> None:
    command(server, "ACL SETUSER", "windlass_shop", "-hvals")
    app = App(RedisStore.from_url(url_of(server)))
    with pytest.raises(StoreError, match=r"denied access .*hvals.*; check user, password and ACL"):
        await app.operator.count(Filter())
    await app.close()
    command(server, *documented())
