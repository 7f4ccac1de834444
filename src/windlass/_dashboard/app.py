"""The dashboard as an ASGI app below `/dashboard`: finds pages, renders them, and does what forms ask."""

import logging
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any
from urllib.parse import quote, unquote

from jinja2 import Template
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from .._html.assets import asset_response
from .._html.environment import environment
from .._http.app import without_body
from .._http.auth import ANONYMOUS, Caller
from .._http.service import Service
from .._http.web.body import read_form
from .._http.web.load import Held
from .._http.web.problems import SAFE_HEADERS, TITLES, Problem, problem_for
from .._http.web.refusal import Refusal
from .._http.web.router import segments_within
from .._store.partial_answers import partial_answers
from ..errors import WindlassError
from .access import Resolver
from .forms import FormToken, personal, remember_name, remember_visitor, require_token, sender, token_of
from .live import LivePages
from .page import Action, Pages, Screen, Shown
from .screens import ALL
from .sign_in import SignIn
from .view import DashboardSettings, View, parse_form
from .viewers import Viewers

logger = logging.getLogger("windlass.dashboard")

PREFIX = "dashboard"
"""The first segment of its paths."""

HEADERS = {
    **SAFE_HEADERS,
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "x-robots-tag": "noindex",
}

_NOTICE = "windlass-notice"
_MAX_NOTICE = 500


class Dashboard:
    """The dashboard over the service of an API."""

    def __init__(
        self,
        service: Service,
        settings: DashboardSettings | None = None,
        *,
        resolve: Resolver | None = None,
        sign_in: str = "",
    ) -> None:
        self.settings = settings or DashboardSettings()
        self._service = service
        self._viewers = Viewers(service, self.settings, resolve)
        self._sign_in = SignIn(service, self._viewers, self._render, self._is_page, sign_in)
        self._live = LivePages(service.closing)
        self._navigation = Navigation(ALL)
        self._screens = _by_segments(ALL, "screens")
        self._actions = _by_segments(ALL, "actions")

    async def __call__(self, connection: Connection, receive: Receive, send: Send) -> None:
        """Respond to a request; every failure becomes a page that says what happened."""
        held = connection["windlass.held"] = Held(self._service.load)
        try:
            request = Request(connection, receive)
            response = await self._response(request, held)
            held.release_body()
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
            await response(connection, receive, send)
        finally:
            held.release()

    async def _response(self, request: Request, held: Held) -> Response:
        caller = ANONYMOUS
        segments = segments_within(request.scope)[1:]
        base = "../" * (len(segments) - 1) or "./"
        try:
            if not segments:
                return RedirectResponse(f"{PREFIX}/", 307)
            if segments[0] == "assets" and (found := asset_response("/".join(segments[1:]), request)):
                return found
            if (found := await self._sign_in.respond(request, segments, base)) is not None:
                return found
            caller = await self._viewers.caller(request)
            held.begin(caller.key_name, urgent=False)
            self._service.rate_limiter.take_request(caller.key)
            if request.method == "POST":
                return await self._act(request, caller, segments, base)
            if request.method not in ("GET", "HEAD"):
                raise Problem("method-not-allowed", "pages are read with GET and changed with POST")
            response = await self._show(request, caller, segments, base, held)
            return without_body(response) if request.method == "HEAD" else response
        except Refusal as refusal:
            if refusal.status == 401 and (found := self._sign_in.redirect(request, segments, base)):
                return found
            self._service.refusals.add(refusal, request, "/dashboard", refusal.key_id or caller.key_name)
            return self._problem(request, caller, base, refusal)
        except (Problem, WindlassError) as error:
            return self._problem(request, caller, base, problem_for(error, request))
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            logger.exception("%s %s failed: %s", request.method, request.url.path, type(error).__name__)
            problem = Problem("internal", "internal error; the server's log has the details")
            return self._problem(request, caller, base, problem)

    # -- pages ---------------------------------------------------------------------------------------

    async def _show(
        self, request: Request, caller: Caller, segments: list[str], base: str, held: Held
    ) -> Response:
        screen, parameters = _find(self._screens, segments)
        request.scope["path_params"] = parameters
        view = self._view(request, caller)
        if not screen.is_open_to(view):
            raise Problem("forbidden", f"this key may not see {screen.title.lower()}")
        if "live" in request.query_params and screen.live:
            held.begin_stream()
            return self._stream(screen, view, base)
        response = await self._page(screen, view, base)
        remember_visitor(request, response)
        if _NOTICE in request.cookies:
            response.delete_cookie(_NOTICE, path="/", httponly=True, samesite="strict")
        return response

    async def _page(self, screen: Screen, view: View, base: str, problem: Problem | None = None) -> Response:
        """Render a page; with the problem that the form on it has run into, if there is one."""
        with partial_answers() as missing:
            data = await screen.handler(view)
        if isinstance(data, Response):
            return data
        template = environment().get_template(screen.template)
        page = {**self._frame(view.http, view.caller, screen, view), "problem": problem, "missing": missing}
        html = template.render(page=page, base=base, view=view, token=FormToken.shared(view.caller), **data)
        return _html(personal(view.http)(html), problem.status if problem else data.get("status", 200))

    def _view(
        self, request: Request, caller: Caller, form: Mapping[str, tuple[str, ...]] | None = None
    ) -> View:
        service = self._service.seen_by(caller)
        return View(service=service, caller=caller, http=request, settings=self.settings, form=form or {})

    def _stream(self, screen: Screen, view: View, base: str) -> Response:
        """Send the block `live` of the page, again whenever it has changed."""
        template, token = environment().get_template(screen.template), FormToken.shared(view.caller)

        async def render() -> str:
            try:
                with partial_answers() as missing:
                    data = await screen.handler(view)
            except WindlassError as error:  # its message may name hosts and files
                raise problem_for(error, view.http) from error
            lacking = environment().get_template("missing.html").render(missing=missing)
            return lacking + _block(template, "live", {"base": base, "view": view, "token": token, **data})

        asked = sorted(pair for pair in view.http.query_params.multi_items() if pair[0] != "live")
        events = self._live.watch(
            (screen.path, tuple(view.http.path_params.items()), tuple(asked), base, view.caller.rights),
            render,
            personal(view.http),
            lambda: self._viewers.recheck(view.http, view.caller),
        )
        return StreamingResponse(events, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    def _frame(
        self, request: Request, caller: Caller, screen: Screen | None, view: View | None
    ) -> Mapping[str, Any]:
        """Return what is around a page: the menu, who looks, the settings of the browser."""
        query = request.url.query
        return {
            "title": "" if screen is None else screen.title,
            "menu": () if view is None else self._navigation.menu(view, screen),
            "who": "" if caller.key is None else caller.key.label,
            "token": token_of(request),
            "is_signed_in": self._viewers.is_signed_in(request),
            "theme": request.cookies.get("windlass-theme", ""),
            "shortcuts": request.cookies.get("windlass-shortcuts", "on"),
            "live_url": f"?{query}&live=1" if query else "?live=1",
            "is_live": screen is not None and screen.live,
            "notice": unquote(request.cookies.get(_NOTICE, ""))[:_MAX_NOTICE],
            "problem": None,
            "missing": (),
            "read_only": self.settings.read_only,
            "version": metadata.version("windlass"),
        }

    def _problem(self, request: Request, caller: Caller, base: str, problem: Problem) -> Response:
        title = TITLES[problem.status].capitalize()
        response = self._render(
            request, base, "problem.html", problem.status, caller=caller, title=title, problem=problem
        )
        response.headers.update(problem.headers)
        return response

    def _render(
        self,
        request: Request,
        base: str,
        template: str,
        status: int,
        *,
        caller: Caller = ANONYMOUS,
        **data: Any,
    ) -> Response:
        """Render a page that is not a screen."""
        page = self._frame(request, caller, None, None)
        return _html(environment().get_template(template).render(page=page, base=base, **data), status)

    def _is_page(self, segments: list[str]) -> bool:
        try:
            return bool(_find(self._screens, segments))
        except Problem:
            return False

    # -- actions -------------------------------------------------------------------------------------

    async def _act(self, request: Request, caller: Caller, segments: list[str], base: str) -> Response:
        action, parameters = _find(self._actions, segments)
        try:
            form = parse_form(await read_form(request))
        except ValueError:
            raise Problem("invalid-request", "the form has too many fields") from None
        require_token(request, form)
        caller = sender(request, caller, form)
        if self.settings.read_only:
            raise Problem("forbidden", "this dashboard is read-only")
        request.scope["path_params"] = parameters
        view = self._view(request, caller, form)
        try:
            done = await action.handler(view)
        except (Problem, WindlassError) as error:
            problem = problem_for(error, request)
            if not action.form or isinstance(problem, Refusal):
                raise
            screen = next(one for wanted, one in self._screens if one.path == action.form)
            return await self._page(screen, view, base, problem)
        if isinstance(done, Response):
            return done
        if isinstance(done, Shown):
            page = {**self._frame(request, caller, None, view), "title": done.title}
            template = environment().get_template(done.template)
            token = FormToken.shared(caller)
            html = template.render(page=page, base=base, view=view, token=token, **done.data)
            return _html(personal(request)(html))
        response = RedirectResponse(f"{base}{done.page}", 303)
        remember_name(caller, response)
        notice = quote(done.notice[:_MAX_NOTICE])
        response.set_cookie(_NOTICE, notice, max_age=20, path="/", httponly=True, samesite="strict")
        return response


def _find(found: list[tuple[tuple[str, ...], Any]], segments: list[str]) -> tuple[Any, dict[str, str]]:
    """Return the page of a path, and its parameters; raise 404 if there is none."""
    for wanted, page in found:
        if len(wanted) == len(segments):
            pairs = [*zip(wanted, segments, strict=True)]
            if all(one == given or one.startswith("{") for one, given in pairs):
                return page, {one[1:-1]: given for one, given in pairs if one.startswith("{")}
    raise Problem("not-found", "there is no such page")


def _by_segments(pages: tuple[Pages, ...], kind: str) -> list[tuple[tuple[str, ...], Any]]:
    """Return screens or actions by the segments of their paths, those without parameters first."""
    found: list[Screen | Action] = [one for some in pages for one in getattr(some, kind)]
    found.sort(key=lambda one: one.path.count("{"))
    return [(tuple(one.path.split("/")[1:]), one) for one in found]


def _block(template: Template, name: str, data: Mapping[str, Any]) -> str:
    return "".join(template.blocks[name](template.new_context({**data})))


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, media_type="text/html")


# -- navigation ----------------------------------------------------------------------------------------


class Item(Struct, frozen=True, kw_only=True):
    """An entry of the menu. `key`: typed after `g`, it leads there."""

    path: str
    label: str
    icon: str
    key: str


ITEMS = (
    Item(path="", label="Overview", icon="house", key="o"),
    Item(path="tasks", label="Tasks", icon="list", key="t"),
    Item(path="failures", label="Failures", icon="skull", key="f"),
    Item(path="queues", label="Queues", icon="layers", key="q"),
    Item(path="limits", label="Limits", icon="gauge", key="i"),
    Item(path="workers", label="Workers", icon="users", key="w"),
    Item(path="schedules", label="Schedules", icon="calendar-clock", key="s"),
    Item(path="chains", label="Chains", icon="git-branch", key="c"),
    Item(path="metrics", label="Metrics", icon="chart-line", key="m"),
    Item(path="alerts", label="Alerts", icon="bell", key="a"),
    Item(path="audit", label="Audit log", icon="scroll-text", key="l"),
    Item(path="keys", label="Keys", icon="key-round", key="k"),
    Item(path="health", label="Health", icon="heart-pulse", key="h"),
)


class Navigation:
    """The menu of the screens that exist."""

    def __init__(self, pages: Sequence[Pages]) -> None:
        found = {screen.path: screen for some in pages for screen in some.screens}
        self._items = [(item, found[f"/{item.path}"]) for item in ITEMS if f"/{item.path}" in found]

    def menu(self, view: View, current: Screen | None) -> list[dict[str, Any]]:
        """Return the entries that the caller may see."""
        section = None if current is None else current.section
        return [
            {
                "path": item.path,
                "label": item.label,
                "icon": item.icon,
                "key": item.key,
                "is_current": section == item.path,
            }
            for item, screen in self._items
            if screen.is_open_to(view)
        ]
