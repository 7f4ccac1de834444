"""robots.txt: which paths of a site a program may fetch (RFC 9309)."""

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote

from msgspec import Struct

MAX_BYTES = 500 * 1024  # that must be read at least, by the RFC
_LINE = re.compile(r"\s*([A-Za-z-]+)\s*:\s*([^#\r\n]*)")
_MAX_DELAY = 3600.0


class _Rule(NamedTuple):
    length: int  # of the pattern: the longest that matches wins
    allow: bool
    parts: tuple[str, ...]  # of the pattern, between its stars
    at_end: bool  # whether the last part must be at the end

    def matches(self, path: str) -> bool:
        """Match without backtracking: each part at the first place after the one before."""
        first, *others = self.parts
        if not path.startswith(first):
            return False
        at = len(first)
        last = others.pop() if self.at_end and others else None
        for part in others:
            if (found := path.find(part, at)) < 0:
                return False
            at = found + len(part)
        if last is not None:
            return len(path) - len(last) >= at and path.endswith(last)
        return not self.at_end or at == len(path)


class Robots(Struct, frozen=True):
    """The rules that apply to one program. Without any, everything is allowed."""

    rules: tuple[_Rule, ...] = ()
    delay: float = 0.0  # seconds between requests

    def allows(self, path: str) -> bool:
        """Return whether a path, with its query, may be fetched."""
        plain = unquote(path)
        return max([rule[:2] for rule in self.rules if rule.matches(plain)], default=(0, True))[1]


def parse_robots(text: str, agent: str) -> Robots:
    """Parse the rules for a program of this name, or else those for all (*)."""
    ours = (agent.lower(), "*")
    groups: dict[str, list[tuple[str, str]]] = {}
    named: set[str] = set()  # of ours: a file may have thousands of others before thousands of rules
    after_rules = True
    for line in text.splitlines():
        if (found := _LINE.match(line)) is None:
            continue
        key, value = found[1].lower(), found[2].strip()
        if key == "user-agent":
            if after_rules:
                named = set()
            after_rules = False
            if value.lower() in ours:
                named.add(value.lower())
                groups.setdefault(value.lower(), [])
        elif key in ("allow", "disallow", "crawl-delay"):
            after_rules = True
            for one in named:
                groups[one].append((key, value))
    return _robots(groups.get(agent.lower(), groups.get("*", ())))


def _robots(lines: Iterable[tuple[str, str]]) -> Robots:
    rules: list[_Rule] = []
    delay = 0.0
    for key, value in lines:
        if key == "crawl-delay":
            delay = min(float(value), _MAX_DELAY) if re.fullmatch(r"\d{1,6}(\.\d{1,3})?", value) else delay
        elif value:  # an empty one allows everything
            at_end = value.endswith("$")
            parts = unquote(value.removesuffix("$")).split("*")
            rules.append(_Rule(len(value), key == "allow", tuple(parts), at_end))
    return Robots(tuple(rules), delay)
