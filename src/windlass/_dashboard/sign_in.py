"""Sign in with a key, and out. Failures are bounded, by address and in all; the right key always signs in."""

from collections.abc import Callable
from math import ceil
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from .._http.service import Service
from .._http.web.body import read_form
from .._http.web.keyless import is_local
from .._http.web.load import held_by
from .._http.web.problems import Problem
from .._http.web.refusal import Reason, Refusal
from .._policy.api_key import LOGIN_LIFETIME
from .._timers import wait_for_event
from .forms import remember_visitor, require_token
from .lockout import Lockout
from .view import parse_form
from .viewers import LOGIN, Viewers

PATH = "login"
MAX_FORM = 16 << 10
"""Bytes of the form: those who send it are not known yet."""

SLOW_SECONDS, MAX_SLOW = 1.0, 50
"""While sign-ins fail in large numbers, each failure takes this long, and at most this many wait."""

Render = Callable[..., Response]
"""Render a template as a page: request, base, template, status, data."""


class SignIn:
    """The pages of signing in and out. `is_page` tells whether a path below the dashboard is a page."""

    def __init__(
        self,
        service: Service,
        viewers: Viewers,
        render: Render,
        is_page: Callable[[list[str]], bool],
        elsewhere: str,
    ) -> None:
        self._service = service
        self._viewers = viewers
        self._render = render
        self._is_page = is_page
        self._elsewhere = elsewhere  # where the program around the dashboard lets people sign in
        self._lockout = Lockout()
        self._slow = 0

    async def respond(self, request: Request, segments: list[str], base: str) -> Response | None:
        """Respond if the path is one of these; None if it is not."""
        is_form = request.method == "POST"
        match segments, is_form:
            case ["login"], False:
                return await self._show(request, base)
            case ["login"], True:
                return await self._sign_in(request, base)
            case ["login", "check"], False:
                return await self._check(request, base)
            case ["logout"], True:
                return await self._sign_out(request, base)
            case _:
                return None

    def redirect(self, request: Request, segments: list[str], base: str) -> Response | None:
        """Lead to the page for signing in, and then back; None if it is not a page that is asked for."""
        is_page = request.method in ("GET", "HEAD") and "live" not in request.query_params
        if not is_page or "authorization" in request.headers:
            return None
        query = request.url.query
        if self._elsewhere:
            page = quote(request.url.path + (f"?{query}" if query else ""))
            return RedirectResponse(f"{self._elsewhere}?next={page}", 303)
        page = "/".join(quote(one, safe="") for one in segments) + (f"?{query}" if query else "")
        return RedirectResponse(f"{base}{PATH}" + (f"?next={quote(page, safe='')}" if page else ""), 303)

    async def _show(self, request: Request, base: str) -> Response:
        page = self._checked_page(request.query_params.get("next", ""))
        try:
            await self._viewers.caller(request)
        except Refusal as refusal:
            if refusal.status != 401:
                raise
            return self._form(request, base, page, 200, None)
        return RedirectResponse(f"{base}{page}", 303)

    async def _sign_in(self, request: Request, base: str) -> Response:
        held_by(request).begin("", urgent=False)
        form = parse_form(await read_form(request, MAX_FORM))
        require_token(request, form)
        page = self._checked_page(form.get("next", ("",))[0])
        try:
            value = await self._verified(request, form.get("key", ("",))[0].strip())
        except Refusal as refusal:
            self._service.refusals.add(refusal, request, f"/dashboard/{PATH}", refusal.key_id)
            return self._form(request, base, page, refusal.status, refusal)
        response = RedirectResponse(f"{base}{PATH}/check?next={quote(page, safe='')}", 303)
        response.set_cookie(
            LOGIN,
            value,
            max_age=int(LOGIN_LIFETIME.total_seconds()),
            path="/",
            secure=True,
            httponly=True,
            samesite="strict",
        )
        return response

    async def _verified(self, request: Request, text: str) -> str:
        """Return the value of the login; raises a Refusal. Only failures wait: the right key signs in."""
        try:
            return await self._viewers.logins.sign_in(text)
        except Refusal as refusal:
            if refusal.status != 401:
                raise
            await self._bound_failures(self._viewers.proxies.client_address(request))
            raise

    async def _bound_failures(self, address: str) -> None:
        """Count a failure; raise a Refusal if it is one too many, and wait if there are many."""
        if seconds := ceil(self._lockout.seconds_left(address)):
            raise _locked_out(f"too many failed attempts from your address; retry in {seconds} s", seconds)
        is_flooded = self._lockout.is_flooded
        self._lockout.note_failure(address)
        if not is_flooded:
            return
        if self._slow >= MAX_SLOW:
            raise _locked_out("too many failed attempts; retry in a few seconds", 5)
        self._slow += 1
        try:
            await wait_for_event(self._service.closing, SLOW_SECONDS)
        finally:
            self._slow -= 1

    async def _check(self, request: Request, base: str) -> Response:
        """Go on if the browser has kept the cookie; else tell why it has not."""
        page = self._checked_page(request.query_params.get("next", ""))
        if LOGIN in request.cookies:
            return RedirectResponse(f"{base}{page}", 303)
        problem = Problem(
            "forbidden",
            "the browser did not keep the login: that needs HTTPS, unless the server runs on your machine; "
            "put a proxy with TLS in front of it, and allow cookies",
        )
        return self._form(request, base, page, 403, problem)

    async def _sign_out(self, request: Request, base: str) -> Response:
        held_by(request).begin("", urgent=False)
        require_token(request, parse_form(await read_form(request, MAX_FORM)))
        await self._viewers.logins.sign_out(request.cookies.get(LOGIN, ""))
        response = RedirectResponse(f"{base}{PATH}", 303)
        response.delete_cookie(LOGIN, path="/", secure=True, httponly=True, samesite="strict")
        return response

    def _form(self, request: Request, base: str, page: str, status: int, problem: Problem | None) -> Response:
        data = {"next": page, "problem": problem, "needs_https": _needs_https(request)}
        response = self._render(request, base, "sign_in.html", status, **data)
        response.headers.update({} if problem is None else problem.headers)
        remember_visitor(request, response)
        return response

    def _checked_page(self, text: str) -> str:
        """Return a page of the dashboard, as it can follow its base; "" if it is none."""
        path, _, query = text.partition("?")
        segments = [unquote(one) for one in path.split("/")]
        if not self._is_page(segments) or any(one in (".", "..") for one in segments):
            return ""
        below = "/".join(quote(one, safe="") for one in segments)
        return f"{below}?{quote(query, safe='=&+%')}" if query else below


def _locked_out(detail: str, seconds: int) -> Refusal:
    return Refusal("too-many-requests", detail, Reason.LOCKED_OUT, headers={"Retry-After": str(seconds)})


def _needs_https(request: Request) -> bool:
    """Tell whether the page was probably sent in the clear over a network.

    Browsers send Sec-Fetch-Site over HTTPS and to their own machine only; a proxy may speak HTTPS to them.
    """
    headers = request.headers
    is_safe = request.url.scheme == "https" or headers.get("x-forwarded-proto") == "https"
    host = headers.get("host", "").encode("latin-1")
    return not (is_safe or "sec-fetch-site" in headers or is_local(host))
