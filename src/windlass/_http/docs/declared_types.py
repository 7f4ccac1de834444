"""Task types that were declared with an example, for the OpenAPI document: their payloads and examples."""

import re
from collections.abc import Iterable
from inspect import cleandoc

from ..._handler.spec import HandlerSpec
from .json_schema import Json

_COMPONENT = re.compile(r"[A-Za-z0-9._-]+")  # names that OpenAPI allows
_REFERENCE = "#/components/schemas/"


def with_types(document: Json, types: Iterable[HandlerSpec]) -> Json:
    """Add the schema of each type's payload, as the component `payload.TYPE`, and its example to a document.

    Fields that are secret are marked `writeOnly`: no response shows them.
    """
    for spec in types:
        schema = _payload_schema(spec, document["components"]["schemas"])
        for body in _enqueue_bodies(document):
            body["examples"][spec.name] = _example(spec, schema)
    return document


def _enqueue_bodies(document: Json) -> list[Json]:
    """Return the bodies that take a task; their single example becomes the first of several."""
    bodies = []
    for path in ("/tasks", "/tasks/stream"):
        for content in document["paths"][path]["post"]["requestBody"]["content"].values():
            if "example" in content:
                content["examples"] = {"your own type": {"value": content.pop("example")}}
            bodies.append(content)
    return bodies


def _example(spec: HandlerSpec, schema: str | None) -> Json:
    summary = (cleandoc(spec.handler.__doc__ or "") or spec.name).partition("\n")[0]
    described = {} if schema is None else {"description": f"The payload is a `{schema}`."}
    return {"summary": summary, **described, "value": {"type": spec.name, "payload": spec.example}}


def _payload_schema(spec: HandlerSpec, components: Json) -> str | None:
    """Add the schema of a type's payload; return its name, or None if the type's name is not one there."""
    name = f"payload.{spec.name}"
    if not _COMPONENT.fullmatch(name):
        return None
    schema, made = spec.signature.schema(f"{_REFERENCE}{name}.")
    for field in spec.defaults.secret:
        if field in schema["properties"]:
            schema["properties"][field]["writeOnly"] = True
    components[name] = schema
    components |= {f"{name}.{inner}": one for inner, one in made.items()}
    return name
