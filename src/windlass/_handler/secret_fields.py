"""Check the names of a task type's secret fields: a misspelt one would leave its secret in clear."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias

from .._policy.input.quote import quoted
from .._policy.secrets.patterns import PREFIX
from ..errors import InvalidOption

Schema: TypeAlias = Mapping[str, Any]
"""A JSON schema. What its references name, behind `REFS`, is in `$defs` of the whole."""

REFS = "#/$defs/"
_BELOW = ("anyOf", "oneOf", "allOf", "prefixItems")
_ABOUT = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})


def check_secret(names: Iterable[str], documents: Iterable[Schema], whose: str) -> None:
    """Raise InvalidOption for a name, or dotted path, that no object in these documents has.

    The documents are the schemas of a type's payload and result. Where they leave open what an object has
    (`dict`, `Any`, `**kwargs`), any name is possible that does not resemble a known one.
    """
    fields = [_Fields(document) for document in documents]
    for name in names:
        if name.startswith(PREFIX):
            continue
        found: list[_Found] = []
        for one in fields:
            found.append(one.by_path(name.split(".")) if "." in name else one.anywhere(name))
            if found[-1].is_there:  # to look for similar names in the others takes longer
                break
        meant = next((one.meant for one in found if one.meant), "")
        if found[-1].is_there or (not meant and any(one.is_possible for one in found)):
            continue
        hint = f"; did you mean {meant!r}?" if meant else ""
        raise InvalidOption(
            f"secret names the field {quoted(name)}, which {whose} neither takes nor is annotated to "
            f"return{hint}"
        )


class _Found(NamedTuple):
    """Whether documents have a field, may have it, or have one of a similar name."""

    is_there: bool = False
    is_possible: bool = False
    meant: str = ""


class _Members(NamedTuple):
    """What the objects of a schema have: fields, and whether there may be any others."""

    fields: dict[str, list[Schema]]
    others: list[Schema]
    is_open: bool

    def find(self, name: str) -> _Found:
        if name in self.fields:
            return _Found(is_there=True)
        close = get_close_matches(name, self.fields, n=1)
        return _Found(is_possible=self.is_open, meant=close[0] if close else "")


class _Fields:
    """The fields that the objects of a document have."""

    def __init__(self, document: Schema) -> None:
        self._document = document

    def anywhere(self, name: str) -> _Found:
        """Look for a field of an object at any depth."""
        whole, todo, seen = _Members({}, [], is_open=False), [self._document], set[int]()
        while todo:
            here = self._members([todo.pop()], seen)
            todo += [one for schemas in here.fields.values() for one in schemas] + here.others
            whole = _Members(whole.fields | here.fields, [], is_open=whole.is_open or here.is_open)
        return whole.find(name)

    def by_path(self, path: Sequence[str]) -> _Found:
        """Look for a field by its path from the root."""
        schemas: Sequence[Schema] = [self._document]
        for depth, name in enumerate(path):
            here = self._members(schemas, set())
            found = here.find(name)
            if found.meant:
                return found._replace(meant=".".join((*path[:depth], found.meant, *path[depth + 1 :])))
            if not found.is_there:
                return found._replace(is_there=found.is_possible and depth > 0)
            schemas = here.fields[name]
        return _Found(is_there=True)

    def _members(self, schemas: Sequence[Schema], seen: set[int]) -> _Members:
        fields: dict[str, list[Schema]] = {}
        others: list[Schema] = []
        is_open = False
        for one in self._alternatives(schemas, seen):
            for name, below in one.get("properties", {}).items():
                fields.setdefault(name, []).append(below)
            rest = one.get("additionalProperties")
            others += [rest] if isinstance(rest, dict) else []
            is_open = is_open or (bool(rest) if "properties" in one else _may_be_object(one))
        return _Members(fields, others, is_open)

    def _alternatives(self, schemas: Sequence[Schema], seen: set[int]) -> Iterator[Schema]:
        """Iterate over what a value may be, each once; for a list, over what its items may be."""
        todo: list[Any] = [*schemas]
        while todo:
            one = todo.pop()
            if not isinstance(one, dict) or id(one) in seen:
                continue
            seen.add(id(one))
            if "$ref" in one:
                todo.append(self._document.get("$defs", {}).get(one["$ref"].removeprefix(REFS)))
            elif below := [part for key in _BELOW for part in one.get(key, ())] + [*_items(one)]:
                todo += below
            else:
                yield one


def _items(schema: Schema) -> Iterator[Any]:
    if isinstance(schema.get("items"), dict):
        yield schema["items"]


def _may_be_object(schema: Schema) -> bool:
    """Whether values of a schema that names no fields may have some."""
    if "type" in schema:
        return schema["type"] == "object" or (schema["type"] == "array" and schema.get("maxItems") != 0)
    return _ABOUT.issuperset(schema)
