"""Who looks at the dashboard: the program around it tells, a trusted proxy, a login, or a key."""

from time import monotonic

from starlette.requests import Request

from .._http.auth import Caller
from .._http.logins import Logins
from .._http.service import Service
from .._http.web.refusal import Reason, Refusal
from .access import Proxies, Resolver, resolved
from .view import DashboardSettings

LOGIN = "__Host-windlass"
"""The cookie of those who are signed in. Browsers take such a name only over HTTPS, or from this machine."""

RESOLVED_FOR = 10.0
"""Seconds after which the program around the dashboard is asked again, for a page that stays open."""

_RESOLVED_AT = "windlass.resolved_at"
_SIGNED_IN = "windlass.signed_in"


class Viewers:
    """Tells who sends a request."""

    def __init__(self, service: Service, settings: DashboardSettings, resolve: Resolver | None) -> None:
        self.logins = Logins(service.app.store, service.authenticator)
        self._authenticator = service.authenticator
        self._resolve = resolve
        self.proxies = Proxies(settings)
        # Where people are told apart, nobody comes in unnamed, even if the API requires no key.
        self._are_named = resolve is not None or bool(settings.user_header)

    async def caller(self, request: Request) -> Caller:
        """Return the caller; raises a Refusal."""
        if self._resolve is not None and (found := await resolved(self._resolve, request)) is not None:
            request.scope[_RESOLVED_AT] = monotonic()
            return found
        if (found := self.proxies.caller(request)) is not None:
            return found
        value = request.cookies.get(LOGIN)
        if value and (found := await self.logins.caller(value)) is not None:
            request.scope[_SIGNED_IN] = True
            return found
        if self._are_named:
            return await self._authenticator.authenticate_key(request)
        return await self._authenticator.authenticate(request, forms=True)

    async def recheck(self, request: Request, caller: Caller) -> None:
        """Raise a Refusal unless the sender of a request from a while ago is still who it was."""
        if monotonic() - request.scope.get(_RESOLVED_AT, 0.0) < RESOLVED_FOR:
            return
        if (await self.caller(request)).rights != caller.rights:
            raise Refusal("unauthorized", "what you may see has changed; reload the page", Reason.SCOPE)

    @staticmethod
    def is_signed_in(request: Request) -> bool:
        """Tell whether the caller is known by a login, which can be ended."""
        return _SIGNED_IN in request.scope
