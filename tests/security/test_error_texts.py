"""Errors about payloads that do not fit quote no value of a secret field, whoever composes their text."""

import enum
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
import pydantic
import pytest
from msgspec import Meta, Struct

from windlass import App, TaskType, WindlassError

CANARY = "7f3asings-4111"


class Kind(enum.Enum):
    VISA = "visa"


class Tagged(Struct, tag="card"):
    number: int


class Other(Struct, tag="other", forbid_unknown_fields=True):
    number: int


@dataclass
class Card:
    number: int


class Model(pydantic.BaseModel):
    number: int
    kind: Literal["visa"] = "visa"


class Careless(pydantic.BaseModel):
    number: str

    @pydantic.field_validator("number")
    @classmethod
    def check(cls, value: str) -> str:
        raise ValueError(f"bad number {value}")


class Unwritable(pydantic.BaseModel):
    number: Any

    @pydantic.field_serializer("number")
    def write(self, value: Any) -> str:
        raise ValueError(f"cannot write {value}")


class A(pydantic.BaseModel):
    kind: Literal["a"]


class B(pydantic.BaseModel):
    kind: Literal["b"]


class Either(pydantic.BaseModel):
    one: Annotated[A | B, pydantic.Field(discriminator="kind")]


TYPES: dict[str, Any] = {
    "Enum": Kind, "Literal": Literal["a", "b"], "int": int, "float": float, "bool": bool, "date": date,
    "timedelta": timedelta, "UUID": UUID, "Decimal": Decimal, "pattern": Annotated[str, Meta(pattern="^x$")],
    "length": Annotated[str, Meta(max_length=2)], "bytes": bytes, "list": list[int], "dict": dict[str, int],
    "tagged": Tagged | Other, "struct": Tagged, "dataclass": Card, "model": Model, "validator": Careless,
    "discriminator": Either, "serializer": Unwritable, "url": pydantic.HttpUrl,
    "constraint": Annotated[str, pydantic.StringConstraints(pattern="^x$")],
}  # fmt: skip
VALUES: tuple[Any, ...] = (
    CANARY, [CANARY], {"number": CANARY}, {"type": CANARY, "number": 1}, {"one": {"kind": CANARY}},
    CANARY + "\0",
    {"number": "1", "kind": CANARY}, [[CANARY]], {1: CANARY}, CANARY.encode(), {CANARY}, ValueError(CANARY),
    Unwritable(number=CANARY), {"number": object(), "kind": CANARY},
)  # fmt: skip


def declared(app: App, kind: Any, secret: list[str]) -> TaskType[Any, Any, Any]:
    def charge(card: Any) -> None: ...

    charge.__annotations__["card"] = kind
    return app.task(name="charge", secret=secret)(charge)


def ways(app: App, task: TaskType[Any, Any, Any]) -> list[Callable[[Any], object]]:
    return [
        lambda value: task.enqueue(card=value),
        lambda value: task.enqueue_many([{"card": value}]),
        lambda value: task.step(card=value),
        lambda value: app.sync_client.send(task.name, {"card": value}),
    ]


def quoting(kind: Any, secret: list[str]) -> tuple[int, list[str]]:
    """How many errors there were, and those with the canary in what is printed of them."""
    app = App("memory://")
    task, texts = declared(app, kind, secret), []
    for value in VALUES:
        for way in ways(app, task):
            try:
                way(value)
            except WindlassError as error:
                lines = traceback.TracebackException.from_exception(error).format_exception_only()
                texts.append("".join(lines) + str(getattr(error, "pointer", "")) + repr(error.__cause__))
    return len(texts), [text for text in texts if CANARY in text]


@pytest.mark.parametrize("kind", TYPES)
def test_an_error_quotes_no_secret_value(kind: str) -> None:
    number, found = quoting(TYPES[kind], ["card"])

    assert number >= 10
    assert found == []


@pytest.mark.parametrize("kind", ["Enum", "Literal", "tagged", "validator", "discriminator", "serializer"])
def test_what_is_not_secret_is_quoted(kind: str) -> None:
    assert quoting(TYPES[kind], [])[1]


def test_a_worker_quotes_no_secret_value_either() -> None:
    """What was enqueued elsewhere does not fit here: its error is masked when it is raised, and stored."""
    task = declared(App("memory://"), Kind, ["card"])

    with pytest.raises(WindlassError, match=r"\[secret\]") as refused:
        task.spec.signature.arguments(msgspec.json.encode({"card": CANARY}))

    assert CANARY not in str(refused.value)
