"""Routes: find the handler of a request, and where the API is mounted.

A dictionary serves paths without parameters. Starlette's router tries one route after another and wraps each
handler; with fifty routes that took as long as enqueueing the task.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from ..auth import Caller
from ..service import Service
from .problems import Problem

Handler: TypeAlias = Callable[[Service, Caller, Request], Awaitable[Response]]


class Route(Struct, frozen=True):
    """The handler of a method at a path. `urgent`: it is served however busy the server is."""

    handler: Handler
    path: str
    requires_key: bool = True
    urgent: bool = False


Routes: TypeAlias = Mapping[str, Route]


class Template(Struct, frozen=True):
    """A path with parameters, as segments: `{name}` stands for one, percent-decoded."""

    segments: tuple[str, ...]
    routes: Routes

    def match(self, given: Sequence[str]) -> dict[str, str] | None:
        """Return the parameters of a path with as many segments, if it is one of these."""
        if len(given) != len(self.segments):
            return None
        found = {}
        for wanted, segment in zip(self.segments, given, strict=True):
            if wanted.startswith("{"):
                if not segment and wanted not in _WITH_SLASHES:
                    return None
                found[wanted[1:-1]] = segment
            elif wanted != segment:
                return None
        return found

    def match_slashes(self, given: Sequence[str]) -> dict[str, str] | None:
        """Do the same for a name with slashes that are not encoded; ids have none."""
        at = next((number for number, one in enumerate(self.segments) if one in _WITH_SLASHES), None)
        extra = len(given) - len(self.segments)
        if at is None or extra < 1:
            return None
        name = "/".join(given[at : at + extra + 1])
        return self.match((*given[:at], name, *given[at + extra + 1 :]))


_WITH_SLASHES = ("{name}", "{queue}", "{tenant}")


class Router:
    """Finds routes by path and method. Paths without parameters win: `/tasks/batch` is not a task's id.

    A slash in a name may be percent-encoded: `/queues/a%2Fpause` is the queue `a/pause`, whatever operations
    a queue `a` has. One that is not encoded belongs to the name if no operation has such a path.
    """

    def __init__(self, paths: Mapping[str, Routes]) -> None:
        self._plain = {path: _with_head(routes) for path, routes in paths.items() if "{" not in path}
        others = sorted((path for path in paths if "{" in path), key=lambda path: (-path.count("/"), path))
        self._templates = [Template(tuple(path.split("/")[1:]), _with_head(paths[path])) for path in others]

    def find(self, connection: Mapping[str, Any]) -> tuple[Route, dict[str, str]]:
        """Return the route and the path parameters; raise 404 or 405 if there is none."""
        method = connection["method"]
        if (routes := self._plain.get(path_within(connection))) is not None:
            return _route(routes, method), {}
        segments, known = segments_within(connection), None
        for match in (Template.match, Template.match_slashes):
            for template in self._templates:
                if (found := match(template, segments)) is not None:
                    if method in template.routes:
                        return template.routes[method], found
                    known = known or template.routes
        if known:
            return _route(known, method), {}
        raise Problem("not-found", "there is no such path")


def segments_within(connection: Mapping[str, Any]) -> list[str]:
    """Return the decoded segments of the path below the mount point: a segment may contain slashes.

    Servers need not tell how the path was encoded, and what is in between may have changed it.
    """
    path, raw = path_within(connection), connection.get("raw_path")
    if raw is not None:
        given = raw.decode("latin-1")
        if unquote(given) == connection["path"]:
            segments = [unquote(one) for one in given.split("/")]
            return segments[connection["path"].removesuffix(path).count("/") + 1 :]
    return path.split("/")[1:]


def path_within(connection: Mapping[str, Any]) -> str:
    """Return the path below the mount point. Some servers have removed the mount point already."""
    path: str = connection["path"]
    root: str = connection.get("root_path", "").rstrip("/")
    return path[len(root) :] if path.startswith(f"{root}/") else path


def mount_path(connection: Mapping[str, Any]) -> str:
    """Return the mount point, quoted: it may come from the request's path."""
    return quote(connection.get("root_path", "").rstrip("/"))


def _route(routes: Routes, method: str) -> Route:
    if method not in routes:
        allowed = {"Allow": ", ".join(sorted(routes))}
        raise Problem("method-not-allowed", f"allowed methods: {allowed['Allow']}", headers=allowed)
    return routes[method]


def _with_head(routes: Routes) -> Routes:
    return {**routes, "HEAD": routes["GET"]} if "GET" in routes else routes
