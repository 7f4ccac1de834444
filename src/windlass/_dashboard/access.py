"""What people may do whom not a key, but a proxy or the program around the dashboard knows."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from inspect import isawaitable, iscoroutinefunction
from ipaddress import ip_address
from typing import TypeAlias

from msgspec import Struct
from starlette.requests import Request

from .._http.auth import Caller
from .._model.key import ApiKey, Role, Scope
from .._policy.addresses import parse_networks
from .._policy.api_key import checked_label, checked_queues, checked_scopes
from .._policy.input.options import checked_name
from ..errors import InvalidOption, WindlassError
from .view import DashboardSettings

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Access(Struct, frozen=True):
    """Who looks at the dashboard, and what they may do.

    `name`: for the audit log, 1 to 100 characters. `role`: "read", "operate" or "admin". `scopes`: in place
    of a role, what a key with these scopes may do. `tenant`, `queues`: only these [default: all].
    """

    name: str
    role: Role | str = Role.READ
    scopes: tuple[Scope | str, ...] | None = None
    tenant: str | None = None
    queues: tuple[str, ...] | None = None


Resolver: TypeAlias = Callable[[Request], "Awaitable[Access | None] | Access | None"]
"""Tells who sends a request; None: nobody that it knows."""


async def resolved(resolve: Resolver, request: Request) -> Caller | None:
    """Return the caller that the program around the dashboard names. A plain function runs in a thread."""
    if iscoroutinefunction(resolve):
        found = await resolve(request)
    else:
        found = await asyncio.to_thread(resolve, request)
        if isawaitable(found):
            found = await found
    if found is None:
        return None
    try:
        return caller_with(found)
    except WindlassError as error:  # of the program, not of the request
        raise RuntimeError(f"resolve returned an invalid Access: {error}") from error


def caller_with(access: Access) -> Caller:
    """Return the caller with this access; raises InvalidOption or ValueError."""
    name = checked_label(access.name)
    scopes = Role(access.role).scopes if access.scopes is None else checked_scopes(access.scopes)
    key = ApiKey(
        name=f"user {name}",
        label=name,
        hash="",
        scopes=scopes,
        created_at=_EPOCH,
        tenant=None if access.tenant is None else checked_name(access.tenant, "tenant"),
        queues=None if access.queues is None else checked_queues(access.queues),
    )
    return Caller(key, who=key.name)


class Proxies:
    """What trusted proxies tell of requests: the address of the client, and whom they have authenticated."""

    def __init__(self, settings: DashboardSettings) -> None:
        if settings.user_header and not settings.trusted_proxies:
            raise InvalidOption("the header that names users needs the addresses of proxies")
        self._header = settings.user_header.lower()
        self._networks = parse_networks(settings.trusted_proxies)
        self._role = settings.proxy_role

    def caller(self, request: Request) -> Caller | None:
        """Return who sends the request; None if no trusted proxy names exactly one."""
        if not self._header or request.client is None:
            return None
        names = request.headers.getlist(self._header)
        if len(names) != 1 or not names[0].strip() or not self._is_trusted(request.client.host):
            return None
        name = names[0].encode("latin-1").decode("utf-8", "replace").strip()
        return caller_with(Access(name, self._role))

    def client_address(self, request: Request) -> str:
        """Return the address of the client: its own or, of a trusted proxy's request, as the proxy says."""
        peer = request.client.host if request.client else ""
        if not self._is_trusted(peer):
            return peer
        return request.headers.get("x-forwarded-for", "").rpartition(",")[2].strip() or peer

    def _is_trusted(self, host: str) -> bool:
        """Whether this is the address of a trusted proxy."""
        try:
            address = ip_address(host)
        except ValueError:
            return False
        if address.version == 6 and address.ipv4_mapped is not None:  # of a socket for both
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)
