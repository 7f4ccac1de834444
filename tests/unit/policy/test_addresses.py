"""Addresses that requests may be sent to: public ones in every disguise, and those that are allowed."""

from ipaddress import IPv4Address, IPv6Address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._policy.addresses import parse_networks, refused
from windlass.errors import InvalidOption

NOT_PUBLIC = (
    "0.0.0.0", "10.0.0.5", "100.64.0.1", "127.0.0.1", "127.1.2.3", "169.254.169.254", "172.16.0.1",
    "192.0.0.8", "192.168.1.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:7f00:1::1",
    "::ffff:0:127.0.0.1", "2001:db8::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1",
    "ff02::1",
)  # fmt: skip
PUBLIC = (
    "8.8.8.8",
    "93.184.215.14",
    "2606:4700::1111",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
    "2002:808:808::1",
)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    assert refused([address]) == address
    assert refused(["8.8.8.8", address]) == address


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_not_refused(address: str) -> None:
    assert refused([address]) is None


def test_what_is_allowed_is_not_refused() -> None:
    allowed = parse_networks(["10.0.0.0/8", "127.0.0.1", "fd00::/8"])

    assert refused(["10.1.2.3", "127.0.0.1", "::ffff:10.0.0.1", "fd00:ec2::254"], allowed) is None
    assert refused(["127.0.0.2"], allowed) == "127.0.0.2"
    assert refused(["2002:a00:1::1"], allowed) is None
    assert refused(["fe80::1"], allowed) == "fe80::1"


@given(st.ip_addresses(v=4))
def test_a_disguised_address_is_judged_as_itself(address: IPv4Address) -> None:
    number = int(address)
    for disguise in (0xFFFF << 32 | number, int(IPv6Address("64:ff9b::")) | number):
        assert (refused([str(IPv6Address(disguise))]) is None) == (refused([str(address)]) is None)
    wrapped = IPv6Address(0x2002 << 112 | number << 80 | 1)
    assert (refused([str(wrapped)]) is None) == (refused([str(address)]) is None)


@pytest.mark.parametrize("wrong", ["10.0.0.0/33", "10.0.0.1/8", "localhost", "", 7, None])
def test_what_is_no_network_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="not an address or network"):
        parse_networks([wrong])


def test_one_network_must_be_in_a_list() -> None:
    with pytest.raises(InvalidOption, match=r"for a single one pass \['10.0.0.0/8'\]"):
        parse_networks("10.0.0.0/8")
