"""The forms of pages: the token that each must carry, and who sends it where neither key nor login tells.

A page of another site can make a browser send a form here, but it cannot read the token from our pages, and
browsers tell which site sent the form. Both are checked.
"""

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from hmac import compare_digest
from secrets import token_hex, token_urlsafe
from typing import Self
from urllib.parse import quote, unquote

from markupsafe import escape
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from .._http.auth import Caller
from .._http.web.keyless import require_same_origin
from .._http.web.problems import Problem
from .._policy.api_key import checked_label
from ..config import user_name
from .viewers import LOGIN

VISITOR = "windlass-visitor"
"""The cookie of a browser that is not signed in, from which the token of its forms is derived."""

WHO = "windlass-who"
"""The cookie that keeps the name that people gave, on a server without keys."""

_YEAR = 31_536_000

# These stand for the viewer's token and name in what viewers share; random, so that no task contains them.
_TOKEN, _WHO = token_hex(16), token_hex(16)


class FormToken(str):
    """A token, as templates get it. `asks_who`: forms ask who sends them, and suggest `who`."""

    __slots__ = ("asks_who", "who")
    asks_who: bool
    who: str

    @classmethod
    def shared(cls, caller: Caller) -> Self:
        """Return the token in a page that several viewers share; `personal` puts their own into it."""
        token = cls(_TOKEN)
        token.asks_who, token.who = caller.key is None, _WHO
        return token


def personal(request: Request) -> Callable[[str], str]:
    """Return what completes a shared page for the sender of a request."""
    token, who = token_of(request), str(escape(_known_name(request)))
    return lambda text: text.replace(_TOKEN, token).replace(_WHO, who)


def token_of(request: Request) -> str:
    """Return the token for the forms of a page. It is bound to the login, or else to the browser."""
    return sha256(f"form {request.cookies.get(LOGIN) or _visitor(request)}".encode()).hexdigest()


def require_token(request: Request, form: Mapping[str, Sequence[str]]) -> None:
    """Raise 403 unless a page of ours sent the form, to the browser that sends it back."""
    require_same_origin(request.scope["headers"], request.method, frozenset(), forms=True)
    given = form.get("token", ("",))[0]
    is_known = request.cookies.get(LOGIN) or request.cookies.get(VISITOR)
    if not is_known or not compare_digest(given.encode(), token_of(request).encode()):
        raise Problem("forbidden", "this form is from another page or too old; reload the page and retry")


def remember_visitor(request: Request, response: Response) -> None:
    """Give the browser its cookie, unless it has one."""
    if VISITOR not in request.cookies:
        response.set_cookie(VISITOR, _visitor(request), path="/", httponly=True, samesite="strict")


def sender(request: Request, caller: Caller, form: Mapping[str, Sequence[str]]) -> Caller:
    """Return the caller with the name that they gave, if nothing else tells who they are."""
    if caller.key is not None:
        return caller
    given = form.get("who", ("",))[0].strip()
    return replace(caller, who=checked_label(given) if given else _known_name(request))


def remember_name(caller: Caller, response: Response) -> None:
    """Let the browser keep the name that was given."""
    if caller.key is None:
        response.set_cookie(
            WHO, quote(caller.who, safe=""), max_age=_YEAR, path="/", httponly=True, samesite="strict"
        )


def _known_name(request: Request) -> str:
    kept = unquote(request.cookies.get(WHO, "")).strip()
    return kept if kept and kept.isprintable() and len(kept) <= 100 else user_name()


def _visitor(request: Request) -> str:
    known: str | None = request.cookies.get(VISITOR) or request.scope.get(VISITOR)
    if known is None:
        known = request.scope[VISITOR] = token_urlsafe(32)
    return known
