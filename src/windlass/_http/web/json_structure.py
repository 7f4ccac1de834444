"""Check the structure of JSON bodies before they are decoded: nesting, members, and names given twice.

msgspec silently takes the last of two equal names, other parsers the first, so the sender's intent is
unknown. One scan of the bytes finds them, in linear time and with memory only for the names of the objects
that are open. It also bounds what the decoder would build in one go, during which nothing else can run.
"""

import json
import re

import msgspec

from .problems import Problem

MAX_NESTING = 512
"""Levels of a body: enough for the longest chain with the deepest payload."""

MAX_MEMBERS = 500_000
"""Names, texts, objects and lists of a body in its upper levels, where tasks and ids are listed."""

_UPPER_LEVELS = 3
_LISTED_LEVEL = 3  # of the objects in `{"batch": [{…}, …]}`
_SHORT = 2_000
_OPAQUE = ("payload", "result")
_COLON, _OBJECT, _LIST = b":{["
_CLOSE = b"}]"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_TOKEN = re.compile(_STRING + rb"[ \t\r\n]*+:?+|[][{}]", re.DOTALL)
_STRUCTURE = re.compile(_STRING + rb"[ \t\r\n]*+:?+|[][{},]", re.DOTALL)
_NEXT_BRACKET = re.compile(rb'[^]["{}]*+(?:' + _STRING + rb'[^]["{}]*+)*+[][{}]', re.DOTALL)


def check_structure(body: bytes, *, short: int = _SHORT) -> None:
    """Raise a Problem if an object has a name twice, naming the place; or if there is too much in the body.

    Bodies of up to `short` bytes are decoded for it, which is faster, but in one go. Whether the body is JSON
    at all is left to the decoder.
    """
    if len(body) <= short and not _may_have_duplicates(body):
        return
    end = _first_duplicate(body)
    if end is not None:
        path = _path(body, end)
        code = "invalid-payload" if any(part in _OPAQUE for part in path) else "invalid-request"
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        raise Problem(code, f"an object has the same name twice - at `${place}`")


def listed_places(body: bytes, most: int) -> list[tuple[int, int]]:
    """Return where each object begins and ends that the body lists, as `{"batch": [{…}, …]}`.

    Raises a Problem for more than `most`, or too many levels. Checks nothing else, and ends where there is no
    JSON.
    """
    places: list[tuple[int, int]] = []
    depth = position = start = 0
    while (found := _NEXT_BRACKET.match(body, position)) is not None:
        position = found.end()
        if body[position - 1] in _CLOSE:
            depth -= 1
            if depth == _LISTED_LEVEL - 1:
                places.append((start, position))
            continue
        depth += 1
        if depth == _LISTED_LEVEL:
            start = position - 1
            if len(places) >= most:
                raise Problem("too-large", f"a batch lists at most {most:,} objects; split it")
        elif depth > MAX_NESTING:
            raise Problem("invalid-request", f"the body is nested deeper than {MAX_NESTING} levels")
    return places


def _may_have_duplicates(body: bytes) -> bool:
    """Decode and encode again, and compare the numbers of colons: the fastest check of short bodies.

    A name that was dropped takes at least one colon with it. Escapes may hide colons.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    return b"\\u" in body or body.count(b":") != msgspec.json.encode(value).count(b":")


def _first_duplicate(body: bytes) -> int | None:
    """Return where the first repeated name ends. Raises a Problem for too many levels or members."""
    names: set[bytes] = set()
    outer: list[set[bytes]] = []
    members = 0
    for found in _TOKEN.finditer(body):
        token = found[0]
        last = token[-1]
        if last == _COLON:
            name = _name(token)
            if name in names:
                return found.end()
            names.add(name)
        elif last in (_OBJECT, _LIST):
            outer.append(names)
            names = set()
            if len(outer) > MAX_NESTING:
                raise Problem("invalid-request", f"the body is nested deeper than {MAX_NESTING} levels")
        elif last in _CLOSE:
            if not outer:
                return None  # not JSON
            names = outer.pop()
        if len(outer) <= _UPPER_LEVELS:
            members += 1
            if members > MAX_MEMBERS:
                raise Problem("too-large", f"the body lists more than {MAX_MEMBERS:,} values; split it")
    return None


def _path(body: bytes, end: int) -> list[str | int]:
    """Return the names and indexes that lead to the object whose name ends there."""
    path: list[str | int] = []
    for found in _STRUCTURE.finditer(body, 0, end):
        token = found[0]
        if token == b"{":
            path.append("")
        elif token == b"[":
            path.append(0)
        elif token in (b"}", b"]"):
            path.pop()
        elif token == b"," and path and isinstance(path[-1], int):
            path[-1] += 1
        elif token.endswith(b":") and path:
            path[-1] = _name(token).decode(errors="replace")
    return path[:-1]


def _name(token: bytes) -> bytes:
    """Return the name of a token such as `"name" :`, with its escapes resolved."""
    text = token.rstrip(b": \t\r\n")
    if b"\\" not in text:
        return text[1:-1]
    try:
        return str(json.loads(text)).encode("utf-8", "surrogatepass")
    except ValueError:  # not a valid escape: the decoder reports it
        return text[1:-1]
