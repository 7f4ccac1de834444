"""URLs of stores on NATS."""

import pytest

from windlass._store.protocol import Durability
from windlass._stores import store_name
from windlass._stores.jetstream.address import Address, parse
from windlass.errors import InvalidOption


def test_a_url_names_servers_and_store() -> None:
    address = parse(
        "nats://ann:a%40b@one:4222,two:4333,[::1]/shop?replicas=5&durability=durable&monitor=one:8222"
    )

    assert address == Address(
        hosts=(("one", 4222), ("two", 4333), ("::1", 4222)),
        user="ann",
        password="a@b",
        name="shop",
        replicas=5,
        durability=Durability.DURABLE,
        monitor=("one:8222",),
    )
    assert address.servers == ["nats://one:4222", "nats://two:4333", "nats://[::1]:4222"]
    assert address.display == "one:4222,two:4333,[::1]:4222/shop"
    assert address.subject("ask", "claim") == "shop.ask.claim"


def test_the_defaults() -> None:
    address = parse("nats://")
    assert (address.hosts, address.name, address.replicas) == ((("localhost", 4222),), "windlass", 3)
    assert parse("nats+tls://one/shop").servers == ["tls://one:4222"]


def test_an_inbox_can_be_a_user_s_own() -> None:
    assert parse("nats://one/shop?inbox=ann").new_inbox().startswith("_INBOX.ann.")
    assert parse("nats://one/shop").new_inbox().count(".") == 1


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nats://one/a.b", "name of the store"),
        ("nats://one/a*", "name of the store"),
        ("nats://one/a/b", "not valid"),
        ("nats://one/shop?replicas=2", "replicas="),
        ("nats://one/shop?durability=much", "durability="),
        ("nats://one/shop?inbox=a.>", "inbox="),
        ("nats://one/shop?replicsa=3", "unknown option 'replicsa'"),
        ("nats://one:x/shop", "not valid"),
        ("nats://a:b/c@one/shop", "not valid"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(url: str, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        parse(url)


def test_the_password_is_never_shown() -> None:
    assert store_name("nats://ann:secret@one:4222/shop?monitor=one:8222") == "nats://one:4222/shop"
