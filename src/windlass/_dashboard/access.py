"""Who looks at the dashboard, and the token that its forms must carry.

A page of another site can make a browser send a form here, but it cannot read the token from our pages, and
browsers tell which site sent the form. Both are checked.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe

from starlette.requests import Request
from starlette.responses import Response

from .._http.auth import Authenticator, Caller
from .._http.web.keyless import require_same_origin
from .._http.web.problems import Problem

VISITOR = "windlass-visitor"
"""The cookie of a browser, from which the token of its forms is derived."""


class Access:
    """Tells who looks."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def caller(self, request: Request) -> Caller:
        """Return the caller; raises a Refusal."""
        return await self._authenticator.authenticate(request, forms=True)

    def token(self, request: Request) -> str:
        """Return the token for the forms of a page."""
        return sha256(f"form {self._visitor(request)}".encode()).hexdigest()

    def require_token(self, request: Request, form: Mapping[str, Sequence[str]]) -> None:
        """Raise 403 unless a page of ours sent the form, to the browser that sends it back."""
        require_same_origin(request.scope["headers"], request.method, frozenset(), forms=True)
        given = form.get("token", ("",))[0]
        if VISITOR not in request.cookies or not compare_digest(given.encode(), self.token(request).encode()):
            raise Problem("forbidden", "this form is from another page or too old; reload the page and retry")

    def remember(self, request: Request, response: Response) -> None:
        """Give the browser its cookie, unless it has one."""
        if VISITOR not in request.cookies:
            visitor = self._visitor(request)
            response.set_cookie(VISITOR, visitor, path="/", httponly=True, samesite="strict")

    def _visitor(self, request: Request) -> str:
        known: str | None = request.cookies.get(VISITOR) or request.scope.get(VISITOR)
        if known is None:
            known = request.scope[VISITOR] = token_urlsafe(32)
        return known
