"""Routes: find the handler of a request, and where the API is mounted.

A dictionary serves paths without parameters. Starlette's router tries one route after another and wraps each
handler; with fifty routes that took as long as enqueueing the task.
"""

from collections.abc import Awaitable, Callable, Mapping
from re import Pattern
from typing import Any, TypeAlias
from urllib.parse import quote

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from ..auth import Caller
from ..service import Service
from .problems import Problem

Handler: TypeAlias = Callable[[Service, Caller, Request], Awaitable[Response]]


class Route(Struct, frozen=True):
    """The handler of a method at a path."""

    handler: Handler
    path: str
    requires_key: bool = True


Routes: TypeAlias = Mapping[str, Route]


class Router:
    """Finds routes by path and method. Paths without parameters win: `/tasks/batch` is not a task's id."""

    def __init__(self, paths: Mapping[str, Routes]) -> None:
        self._plain = {path: _with_head(routes) for path, routes in paths.items() if "{" not in path}
        others = sorted((path for path in paths if "{" in path), key=lambda path: (-path.count("/"), path))
        self._patterns: list[tuple[Pattern[str], Routes]] = [
            (compile_path(_with_slashes(path))[0], _with_head(paths[path])) for path in others
        ]

    def find(self, connection: Mapping[str, Any]) -> tuple[Route, dict[str, str]]:
        """Return the route and the path parameters; raise 404 or 405 if there is none."""
        path, method = path_within(connection), connection["method"]
        if (routes := self._plain.get(path)) is not None:
            return _route(routes, method), {}
        known: Routes = {}
        for pattern, routes in self._patterns:
            if (match := pattern.fullmatch(path)) is not None:  # `$` matches before a newline
                if method in routes:
                    return routes[method], match.groupdict()
                known = known or routes
        if known:
            return _route(known, method), {}
        raise Problem("not-found", "there is no such path")


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


def _with_slashes(path: str) -> str:
    """Let names and queues contain slashes; ids have none."""
    return path.replace("{name}", "{name:path}").replace("{queue}", "{queue:path}")
