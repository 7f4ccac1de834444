"""Refuse JSON bodies in which an object has the same name twice.

msgspec silently takes the last one, other parsers the first, so the sender's intent is unknown. One scan of
the bytes finds them, in linear time and with memory only for the names of the objects that are open.
"""

import json
import re

import msgspec

from .problems import Problem

_SHORT = 2_000
_OPAQUE = ("payload", "result")
_COLON, _OPEN, _CLOSE = b":{}"
_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_NAMES = re.compile(_STRING + rb"[ \t\r\n]*+:?+|[{}]", re.DOTALL)
_STRUCTURE = re.compile(_STRING + rb"[ \t\r\n]*+:?+|[][{},]", re.DOTALL)


def refuse_duplicate_names(body: bytes) -> None:
    """Raise a Problem that names the place, if an object in this valid JSON has a name twice."""
    if len(body) <= _SHORT and not _may_have_duplicates(body):
        return
    end = _first_duplicate(body)
    if end is not None:
        path = _path(body, end)
        code = "invalid-payload" if any(part in _OPAQUE for part in path) else "invalid-request"
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        raise Problem(code, f"an object has the same name twice - at `${place}`")


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
    """Return where the first repeated name ends."""
    names: set[bytes] = set()
    outer: list[set[bytes]] = []
    for found in _NAMES.finditer(body):
        token = found[0]
        last = token[-1]
        if last == _COLON:
            name = _name(token)
            if name in names:
                return found.end()
            names.add(name)
        elif last == _OPEN:
            outer.append(names)
            names = set()
        elif last == _CLOSE:
            names = outer.pop()
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
        elif token == b"," and isinstance(path[-1], int):
            path[-1] += 1
        elif token.endswith(b":"):
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
