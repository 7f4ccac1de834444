"""Which network addresses a request may be sent to: public ones, and those that are allowed by name.

URLs come from people who may not reach the network that this machine is in: a webhook to 169.254.169.254 or
10.0.0.5 would let them ask what only this machine may.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from ..errors import InvalidOption
from .input.options import checked_sequence
from .input.quote import quoted

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

_NAT64 = IPv6Network("64:ff9b::/96")
_NOT_PUBLIC = tuple(
    ip_network(text)
    for text in (
        # Which of these `is_global` knows depends on the version of Python.
        "0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.88.99.0/24", "198.18.0.0/15", "224.0.0.0/3",
        # Of IPv6 only 2000::/3 is assigned to the internet; other networks may use the rest, as overlays do.
        "::/3", "4000::/2", "8000::/1", "2001::/23", "2001:db8::/32", "3fff::/20",
    )
)  # fmt: skip


def refused(addresses: Iterable[str], allowed: Sequence[Network] = ()) -> str | None:
    """Return the first address that a request may not be sent to; None if it may be sent to all of them.

    An IPv6 address that carries an IPv4 address (mapped, 6to4, Teredo, NAT64) is judged by both.
    """
    for text in addresses:
        address = ip_address(text.partition("%")[0])
        if not all(_is_public(one) or _is_within(one, allowed) for one in _judged(address)):
            return text
    return None


def parse_networks(given: Iterable[str]) -> tuple[Network, ...]:
    """Parse addresses and networks such as 10.0.0.0/8. Raises InvalidOption."""
    return tuple(_network(text) for text in checked_sequence(given, "allow_addresses", "networks"))


def _network(text: str) -> Network:
    try:
        if isinstance(text, str):  # of a number `ip_network` makes an address
            return ip_network(text)
    except ValueError:
        pass
    raise InvalidOption(f"{quoted(text)} is not an address or network such as 10.0.0.0/8")


def _judged(address: Address) -> tuple[Address, ...]:
    """Return the address, or the IPv4 address that is mapped into it; and any other that it carries."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    carried: list[Address] = [address]
    if address.sixtofour is not None:
        carried.append(address.sixtofour)
    if address.teredo is not None:
        carried += address.teredo
    if address in _NAT64:
        carried[0] = IPv4Address(int(address) & 0xFFFFFFFF)
    return tuple(carried)


def _is_public(address: Address) -> bool:
    return address.is_global and not _is_within(address, _NOT_PUBLIC)


def _is_within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
