"""Field types of request bodies and queries, with the bounds that OpenAPI shows."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Raw, Struct

from .._model.filter import MAX_PAGE
from .._model.task import MAX_ATTEMPTS, MAX_DELAY
from .._policy.input.keys import MAX_KEY_BYTES
from .._policy.order.priority import MAX_PRIORITY
from .._policy.secrets.fields import MAX_SECRET, MAX_SECRET_NAME

Name = Annotated[str, Meta(pattern=r"^\w[\w.:@/+-]*$", min_length=1, max_length=128)]
Payload = Annotated[
    Raw,
    Meta(
        description="A JSON object; its keys are the handler's parameters. At most 1 MiB.",
        extra_json_schema={"type": "object"},
        examples=[{"user_id": 1}],
    ),
]
Value = Annotated[Raw, Meta(description="Any JSON. At most 1 MiB.")]
Priority: TypeAlias = (
    Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | Literal["high", "medium", "low"]
)
Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_BYTES)]
Why = Annotated[str, Meta(max_length=500, description="Recorded in the audit log.")]
RevealFlag = Annotated[
    bool, Meta(description="Show secret values: needs the scope `reveal`, and is kept in the audit log.")
]
CreateFlag = Annotated[bool, Meta(description="Set it up if there is none of this name.")]
Limit = Annotated[int, Meta(ge=1, le=MAX_PAGE)]
Parameter = Annotated[str, Meta(min_length=1, max_length=128)]
RunAt = Annotated[
    str,
    Meta(
        max_length=64,
        description="Not before this instant, from 1970 to ten years ahead.",
        extra_json_schema={"anyOf": [{"format": "date-time"}, {"const": "now"}]},
        examples=["2026-11-15T08:00:00Z", "now"],
    ),
]
UniqueFields: TypeAlias = (
    bool
    | Annotated[
        list[Parameter],
        Meta(min_length=1, max_length=100, description="Fields of the payload that make tasks equal."),
    ]
)
SecretFields = Annotated[
    list[Annotated[str, Meta(min_length=1, max_length=MAX_SECRET_NAME)]],
    Meta(
        max_length=MAX_SECRET,
        description="Payload fields, as names or dotted paths, that are masked besides those of the type.",
        examples=[["card", "customer.iban"]],
    ),
]
Notes = Annotated[
    Raw,
    Meta(
        description="Facts to keep with the attempt: a JSON object of at most 4 KiB.",
        extra_json_schema={"type": "object"},
        examples=[{"response_code": 503}],
    ),
]
Expires = Annotated[
    float,
    Meta(
        gt=0,
        le=MAX_DELAY.total_seconds(),
        description="Seconds after its enqueue, or after it is due, when the task no longer starts.",
    ),
]
Attempts = Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)]


class CreateQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whether to set up what does not exist yet."""

    create: CreateFlag = False


def given_fields(body: Struct, names: Iterable[str]) -> dict[str, Any]:
    """Return those of the fields that the request gives."""
    return {name: value for name in names if (value := getattr(body, name)) is not UNSET}
