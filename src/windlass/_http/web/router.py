"""Which operation a request is for: a look into a table, where the path has no parts to be read.

Starlette's router tries one route after another, and wraps each: with fifty of them that took as long as
enqueueing the task.
"""

from collections.abc import Awaitable, Callable, Mapping
from re import Pattern
from typing import Any, TypeAlias

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path

from ..auth import Caller
from ..service import Service
from .mount import path_within
from .problems import Problem

Handler: TypeAlias = Callable[[Service, Caller, Request], Awaitable[Response]]


class Target(Struct, frozen=True):
    """What answers a method at a path, and whether it takes a key."""

    handler: Handler
    takes_key: bool = True


Targets: TypeAlias = Mapping[str, Target]


class Routing:
    """Paths and methods, each with its target. What has no parts goes first: `/tasks/batch` is no task."""

    def __init__(self, paths: Mapping[str, Targets]) -> None:
        self._plain = {path: _heads(targets) for path, targets in paths.items() if "{" not in path}
        parted = sorted((path for path in paths if "{" in path), key=lambda path: (-path.count("/"), path))
        self._parted: list[tuple[Pattern[str], Targets]] = [
            (compile_path(_matched(path))[0], _heads(paths[path])) for path in parted
        ]

    def find(self, connection: Mapping[str, Any]) -> tuple[Target, dict[str, str]]:
        """The target, and the parts of the path; a Problem if there is none."""
        path, method = path_within(connection), connection["method"]
        if (targets := self._plain.get(path)) is not None:
            return _chosen(targets, method), {}
        known: Targets = {}
        for pattern, targets in self._parted:
            if (match := pattern.fullmatch(path)) is not None:  # its `$` would let a line's end go by
                if method in targets:
                    return targets[method], match.groupdict()
                known = known or targets
        if known:
            return _chosen(known, method), {}
        raise Problem(404, "not-found", "there is nothing at this address")


def _chosen(targets: Targets, method: str) -> Target:
    if method not in targets:
        allowed = {"Allow": ", ".join(sorted(targets))}
        raise Problem(405, "method-not-allowed", "this address does not know that method", headers=allowed)
    return targets[method]


def _heads(targets: Targets) -> Targets:
    """Who can be asked for an answer can be asked for its head."""
    return {**targets, "HEAD": targets["GET"]} if "GET" in targets else targets


def _matched(path: str) -> str:
    """The path as it is matched: names may hold slashes, ids do not."""
    return path.replace("{name}", "{name:path}").replace("{queue}", "{queue:path}")
