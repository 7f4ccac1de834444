"""Extract from a page what was asked for. Runs in the sandbox, as pages can make parsers take any time."""

import codecs
import re
from collections.abc import Sequence
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

import msgspec
from msgspec import Struct

FUNCTION = f"{__file__}:extract"
MAX_ITEMS = 1_000
MAX_TEXT = 200_000
MAX_DEPTH = 50  # of JSON in a page: results have at most 64 levels
_SNIFFED = 2_048
_META_CHARSET = re.compile(
    rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([A-Za-z0-9_.:-]{1,40})""", re.IGNORECASE
)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))

Part = Literal["meta", "json_ld", "links", "text"]


class Selector(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to take from the elements that `css` matches: their text, or `attr`; of the first or of `all`."""

    css: str
    attr: str | None = None
    all: bool = False


class Wanted(Struct, frozen=True, kw_only=True):
    """What to extract from the page of a URL; `charset` is what its server said."""

    url: str
    charset: str | None = None
    select: dict[str, Selector] = {}
    parts: tuple[Part, ...] = ()

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Leave out the URL; without `Brief`, as the child imports this file alone."""
        return [("parts", self.parts)]

    def __repr__(self) -> str:
        return f"Wanted(parts={self.parts!r})"


def extract(options: Any, inputs: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Extract from one page. Raises ValueError for a wrong selector."""
    from selectolax.lexbor import LexborHTMLParser, SelectolaxError  # noqa: PLC0415  only the child needs it

    wanted = msgspec.convert(options, Wanted)
    tree = LexborHTMLParser(decoded(inputs[0], wanted.charset))
    base = _base(tree, wanted.url)
    selected: dict[str, Any] = {}
    for name, selector in wanted.select.items():
        try:
            found = tree.css(selector.css)
        except SelectolaxError:
            raise ValueError(f"{selector.css!r} is not a CSS selector") from None
        values = [_value(node, selector, base) for node in found[: MAX_ITEMS if selector.all else 1]]
        selected[name] = values if selector.all else values[0] if values else None
    title = tree.css_first("title")
    made: dict[str, Any] = {"title": None if title is None else _text(title), "selected": selected}
    makers = {"meta": _meta, "json_ld": _json_ld, "links": _links, "text": _body_text}
    for part in dict.fromkeys(wanted.parts):
        made[part] = makers[part](tree, base)  # `text` changes the tree, so it must be the last
    return made, []


def decoded(body: bytes, charset: str | None) -> str:
    """Decode a page by its byte order mark, by what its server said, or by its own `meta`; else as UTF-8."""
    for mark, encoding in _BOMS:
        if body.startswith(mark):
            return body[len(mark) :].decode(encoding, "replace")
    found = _META_CHARSET.search(body[:_SNIFFED])
    for name in (charset, found[1].decode() if found else None):
        if name and (encoding_name := _known(name)) is not None:
            return body.decode(encoding_name, "replace")
    return body.decode("utf-8", "replace")


def _known(name: str) -> str | None:
    """Return the encoding that browsers use for a name; None if it is none for text."""
    try:
        found = codecs.lookup(name.strip())
    except (LookupError, ValueError):
        return None
    if not getattr(found, "_is_text_encoding", True):  # as rot13
        return None
    known: str = found.name
    return "cp1252" if known in ("iso8859-1", "ascii") else known


def _value(node: Any, selector: Selector, base: str) -> str | None:
    if selector.attr is None:
        return _text(node)
    value: str | None = node.attributes.get(selector.attr)
    return (_joined(base, value) or value) if value and selector.attr in ("href", "src") else value


def _text(node: Any) -> str:
    return " ".join(node.text(deep=True, separator=" ").split())[:MAX_TEXT]


def _base(tree: Any, url: str) -> str:
    found = tree.css_first("base[href]")
    return (None if found is None else _joined(url, found.attributes.get("href") or "")) or url


def _joined(base: str, url: str) -> str | None:
    """Return the absolute URL; None if it is not one: pages have any text there."""
    try:
        return urljoin(base, url)
    except ValueError:
        return None


def _meta(tree: Any, _: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for node in tree.css("meta[content]")[:MAX_ITEMS]:
        name = node.attributes.get("name") or node.attributes.get("property")
        if name:
            found.setdefault(name, (node.attributes["content"] or "")[:10_000])
    return found


def _json_ld(tree: Any, _: str) -> list[Any]:
    found: list[Any] = []
    for node in tree.css('script[type="application/ld+json"]')[:50]:
        try:
            value = msgspec.json.decode(node.text(deep=True))
        except (ValueError, RecursionError):  # many pages have some that is not JSON
            continue
        if _is_flat(value):
            found.append(value)
    return found


def _is_flat(value: Any) -> bool:
    """Whether a JSON value is nested no deeper than a result may be."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            part
            for one in level
            if isinstance(one, dict | list)
            for part in (one.values() if isinstance(one, dict) else one)
        ]
    return not level


def _links(tree: Any, base: str) -> list[str]:
    """Return absolute URLs without fragments, each once."""
    found: dict[str, None] = {}
    for node in tree.css("a[href]"):
        try:
            url = urljoin(base, (node.attributes["href"] or "").strip()).partition("#")[0]
            fit = urlsplit(url).scheme in ("http", "https")
        except ValueError:
            continue
        if fit and len(found) < MAX_ITEMS:
            found[url] = None
    return [*found]


def _body_text(tree: Any, _: str) -> str:
    for node in tree.css("script, style, noscript, template"):
        node.decompose()
    return "" if tree.body is None else _text(tree.body)
