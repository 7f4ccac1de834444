"""The URLs of stores on Redis."""

import pytest

from windlass._store.protocol import Durability
from windlass._stores import open_store
from windlass._stores.redis import RedisStore
from windlass._stores.redis.connection.address import parse
from windlass.errors import InvalidOption


@pytest.mark.parametrize("scheme", ["redis", "rediss", "valkey", "valkeys"])
def test_a_url_opens_a_store(scheme: str) -> None:
    store = open_store(f"{scheme}://app:s%40crt@cache:7000/2?name=shop&connections=4&durability=relaxed")

    assert isinstance(store, RedisStore)
    address = store.address
    assert (address.hosts, address.database, address.name) == ((("cache", 7000),), 2, "shop")
    assert (address.user, address.password) == ("app", "s@crt")
    assert (address.connections, address.durability) == (4, Durability.RELAXED)
    assert address.tls == (scheme in ("rediss", "valkeys"))


def test_what_is_left_out_has_a_default() -> None:
    address = parse("redis://")

    assert (address.hosts, address.database, address.name) == ((("localhost", 6379),), 0, "windlass")
    assert (address.user, address.password, address.tls) == (None, None, False)


def test_messages_name_the_server_without_its_password() -> None:
    assert parse("redis://app:secret@cache:7000/2?name=shop").display == "cache:7000/2 (shop)"


@pytest.mark.parametrize(
    ("url", "word"),
    [
        ("redis://host/0?name=a b", "name="),
        ("redis://host/0?name={x}", "name="),
        ("redis://host/0?connections=0", "connections="),
        ("redis://host/0?durability=eternal", "durability="),
        ("redis://host/0?socket_timeout=1", "socket_timeout"),
        ("redis://host/shop", "database"),
        ("redis://app:pass#word@host", "%23"),
        ("redis://app:pass/word@host", "%2F"),
        ("redis://app:1?password1@host", "%3F"),
        ("redis://host:port/0", "not valid"),
    ],
)
def test_a_wrong_url_is_refused(url: str, word: str) -> None:
    with pytest.raises(InvalidOption, match=word) as refusal:
        parse(url)

    assert "pass" not in str(refusal.value).replace("password", "")
    assert "word1" not in str(refusal.value)
