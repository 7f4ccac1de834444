"""Declared types: the handler gets what it declares, and so does the program that asks for the result."""

import asyncio
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypedDict
from uuid import UUID

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Meta, Struct
from pydantic import (
    AfterValidator,
    AnyUrl,
    BaseModel,
    ConfigDict,
    Field,
    NaiveDatetime,
    PlainSerializer,
    RootModel,
    SecretBytes,
    SecretStr,
    computed_field,
)
from pydantic.dataclasses import dataclass as pydantic_dataclass

from tests.loops import child_tasks
from tests.loops.workers import drained
from windlass import RESULT, App, Filter, InvalidOption, InvalidPayload, Page, State, chain
from windlass._encryption.keys import Keyring
from windlass._stores.memory import MemoryStore


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Mood(StrEnum):
    CALM = "calm"


class Place(NamedTuple):
    x: int
    y: float


class Name(TypedDict):
    first: str
    last: str | None


@dataclass
class Line:
    sku: str
    price: Decimal
    on: date
    _bin: int = 0
    tags: frozenset[str] = field(default_factory=frozenset)


@attrs.define
class Crate:
    line: Line
    weight: float = attrs.field(validator=attrs.validators.ge(0))


class Circle(Struct, tag=True):
    radius: int


class Square(Struct, tag=True, rename="camel"):
    side_length: int
    cut: bytes = b""


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid")

    sku: str = Field(alias="SKU")
    number: Annotated[int, Field(gt=0)]
    at: datetime | None = None

    @computed_field
    @property
    def double(self) -> int:
        return 2 * self.number


class Strict(BaseModel):
    """Takes text for an id only in JSON."""

    model_config = ConfigDict(strict=True)

    id: UUID
    colour: Colour


class Vault(BaseModel):
    word: SecretStr
    key: SecretBytes


class Order(BaseModel):
    items: list[Item]
    kind: Item | Strict | int
    line: Line
    parent: "Order | None" = None


@pydantic_dataclass
class Ratio:
    value: Annotated[float, Field(ge=0, le=1)]


@dataclass
class Parcel:
    item: Item
    places: tuple[Place, ...] = ()


texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)
numbers = st.integers(-(1 << 63), (1 << 63) - 1)
floats = st.floats(allow_nan=False, allow_infinity=False)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
zones = st.sampled_from([UTC, timezone(timedelta(hours=-9, minutes=-30))])
instants = st.datetimes(timezones=zones)
days = st.dates()
lines = st.builds(Line, texts, decimals, days, st.integers(0, 9), st.frozensets(texts, max_size=3))
places = st.builds(Place, st.integers(0, 9), floats)
items = st.builds(Item, SKU=texts, number=st.integers(1, 99), at=st.none() | instants)
stricts = st.builds(Strict, id=st.uuids(), colour=st.sampled_from(Colour))
orders = st.builds(
    Order,
    items=st.lists(items, max_size=2),
    kind=items | stricts | st.integers(0, 9),
    line=lines,
    parent=st.none(),
)
squares = st.builds(Square, st.integers(0, 9), st.binary(max_size=5))

KINDS: dict[Any, st.SearchStrategy[Any]] = {
    int: numbers,
    float: floats,
    bool: st.booleans(),
    str | None: st.none() | texts,
    bytes: st.binary(max_size=9),
    Decimal: decimals,
    UUID: st.uuids(),
    date: days,
    time: st.times() | st.times(timezones=zones),
    datetime: instants,
    timedelta: st.timedeltas(timedelta(days=-9), timedelta(days=9)),
    Colour: st.sampled_from(Colour),
    Size: st.sampled_from(Size),
    Mood: st.sampled_from(Mood),
    Literal["a", 1]: st.sampled_from(["a", 1]),
    set[int]: st.sets(numbers, max_size=4),
    tuple[int, str]: st.tuples(numbers, texts),
    dict[int, Decimal]: st.dictionaries(numbers, decimals, max_size=3),
    dict[UUID, dict[Colour, bytes]]: st.dictionaries(
        st.uuids(), st.dictionaries(st.sampled_from(Colour), st.binary(max_size=3), max_size=2), max_size=2
    ),
    Place: places,
    Name: st.fixed_dictionaries({"first": texts, "last": st.none() | texts}),
    Line: lines,
    list[Line] | None: st.none() | st.lists(lines, max_size=2),
    Crate: st.builds(Crate, lines, st.floats(0, 99)),
    Circle | Square: st.builds(Circle, st.integers(0, 9)) | squares,
    Item: items,
    Strict: stricts,
    Order | None: st.none() | orders,
    list[Item]: st.lists(items, max_size=2),
    dict[str, Item]: st.dictionaries(texts, items, max_size=2),
    Item | Strict: items | stricts,
    Ratio: st.builds(Ratio, st.floats(0, 1)),
    Parcel: st.builds(Parcel, items, st.lists(places, max_size=2).map(tuple)),
    Vault: st.builds(Vault, word=st.builds(SecretStr, texts), key=st.builds(SecretBytes, st.just(b"k"))),
    Annotated[int, Field(gt=0)]: st.integers(1, 99),
}


@pytest.mark.parametrize("hint", KINDS, ids=str)
@settings(max_examples=8)
@given(data=st.data())
def test_a_value_arrives_and_comes_back_as_it_is_declared(hint: Any, data: st.DataObject) -> None:
    values = data.draw(st.lists(KINDS[hint], min_size=1, max_size=6))
    app, got = App("memory://"), []

    async def echo(value: Any) -> Any:
        got.append(value)
        return value

    echo.__annotations__ = {"value": hint, "return": hint}
    task_type = app.task(echo)

    async def results() -> list[Any]:
        handles = await task_type.aenqueue_many([{"value": value} for value in values])
        await drained(app, slots=1)
        return [await (await app.client.get(handle.id)).result(timeout=10) for handle in handles]

    given_back = asyncio.run(results())

    assert got == given_back == values
    assert [*map(type, got)] == [*map(type, given_back)] == [*map(type, values)]


# -- refused at declaration --------------------------------------------------------------------------


class Opaque:
    """Has no JSON form."""


class Half(Enum):
    HALF = 0.5


class Around(Struct):
    item: Item


@attrs.define
class Private:
    _number: int = 0


@pytest.mark.parametrize(
    ("hint", "why"),
    [
        (Opaque, "Opaque, which .*: Opaque has no JSON form; annotate it with what is in the JSON"),
        (list[Opaque] | None, "Opaque has no JSON form"),
        (Callable[[], int], "Callable has no JSON form"),
        (complex, "complex has no JSON form"),
        (str | UUID, "unions may not contain more than one str-like type.*; annotate one type, or tagged"),
        (Line | Name, "unions may not contain more than one dict-like type"),
        (dict[tuple[int, int], str], "the keys of a JSON object are strings"),
        (Half, "Enums must contain either all str or all int values"),
        (Private, "private fields of attrs classes, such as _number, are not encoded"),
        (Around, "Unable to generate pydantic-core schema for .*Around"),
        (Item | Opaque, "Unable to generate pydantic-core schema for .*Opaque"),
    ],
    ids=str,
)
def test_what_cannot_be_converted_is_refused_when_it_is_declared(hint: Any, why: str) -> None:
    def taking(value: Any) -> None: ...
    def returning() -> Any: ...

    taking.__annotations__ = {"value": hint}
    returning.__annotations__ = {"return": hint}

    with pytest.raises(InvalidOption, match=f"the parameter 'value' of 'pay' is declared as .*{why}"):
        App("memory://").task(name="pay")(taking)
    with pytest.raises(InvalidOption, match=f"the result of 'pay' is declared as .*{why}"):
        App("memory://").task(name="pay")(returning)


def test_a_secret_result_needs_a_name() -> None:
    def handler() -> list[SecretStr]: ...

    with pytest.raises(InvalidOption, match="masked by the name of its field, and here it has none"):
        App("memory://").task(name="pay")(handler)


def test_an_annotation_that_only_type_checkers_can_resolve_is_refused() -> None:
    def handler(value: "Nowhere") -> None: ...  # noqa: F821

    with pytest.raises(InvalidOption, match="name 'Nowhere' is not defined; define or import it before"):
        App("memory://").task(name="pay")(handler)


def test_a_context_may_be_imported_for_type_checkers_only() -> None:
    def handler(value: int, *, run: "Context") -> None: ...  # noqa: F821

    assert App("memory://").task(handler).spec.signature.context_name == "run"


# -- validation --------------------------------------------------------------------------------------


@pytest.fixture
def app() -> App:
    return App("memory://", backoff=lambda _attempt, _draw: 0)


@pytest.mark.parametrize(
    ("order", "why", "pointer"),
    [
        ({"items": [{"SKU": "a", "number": 0}]}, "Input should be greater than 0", "/order/items/0/number"),
        ({"items": [{"number": 1}]}, "Field required", "/order/items/0/SKU"),
        ({"items": [], "kind": {"SKU": "a", "number": -1}}, "greater than 0", "/order/kind/number"),
        ({"items": [], "kind": 1, "a/b": {}}, "Field required", "/order/line"),
        ([], "valid dictionary|an object", "/order"),
    ],
)
async def test_what_does_not_validate_is_refused_when_it_is_enqueued(
    app: App, order: Any, why: str, pointer: str
) -> None:
    @app.task(name="ship")
    async def ship(order: Order, to: str = "") -> None: ...

    given = {"kind": 1, "line": {"sku": "", "price": "1", "on": "2026-01-01"}, **order} if order else order
    given = order if "a/b" in order else given
    for enqueue in (lambda: ship.aenqueue(order=given), lambda: app.client.send("ship", {"order": given})):
        with pytest.raises(InvalidPayload, match=why) as caught:
            await enqueue()
        assert caught.value.pointer == pointer
        assert "SKU" not in str(caught.value) or "SKU" in pointer  # no values, which may be secret


class Visit(BaseModel):
    at: datetime | None = Field(None, alias="when")
    parts: dict[int, Decimal] = {}
    others: "list[Visit]" = []


@pydantic_dataclass
class Stop:
    at: datetime


class Log(BaseModel):
    local: NaiveDatetime
    stamp: Annotated[datetime, PlainSerializer(lambda at: at.timestamp(), return_type=float)]


class Plain(Struct):
    at: datetime | None = None
    price: Decimal | None = None


NOON = datetime(2026, 1, 1, 12, 0, 0, 5)  # noqa: DTZ001 - naive, to be refused


class Watch(Struct, rename="camel"):
    started_at: datetime


class Row(Struct, array_like=True):
    number: int
    at: datetime


@dataclass
class Shift:
    start: datetime = NOON


class Stay(TypedDict, total=False):
    nights: list[Shift]


@attrs.define
class Pause:
    at: datetime


class Epoch(BaseModel):
    at: datetime = NOON


class Open(BaseModel, extra="allow"):
    number: Annotated[
        float | None, PlainSerializer(lambda number: number if math.isfinite(number) else None)
    ] = 0
    inner: "Open | None" = None


@pytest.mark.parametrize(
    ("hint", "value", "pointer", "why"),
    [
        (Visit, Visit(when=NOON), "/value/when", "a datetime without a time zone; pass an aware datetime"),
        (Visit, {"when": NOON}, "/value/when", "without a time zone"),
        (Visit, Visit(others=[Visit(), Visit(when=NOON)]), "/value/others/1/when", "without a time zone"),
        (list[Visit] | None, [Visit(when=NOON)], "/value/0/when", "without a time zone"),
        (RootModel[list[datetime]], RootModel[list[datetime]]([NOON]), "/value/0", "without a time zone"),
        (Stop, Stop(NOON), "/value/at", "without a time zone"),
        (Visit, Visit.model_construct(parts={3: Decimal("NaN")}), "/value/parts/3", "is NaN"),
        (Plain, Plain(at=NOON), "/value/at", "without a time zone"),
        (Plain, Plain(price=Decimal("Infinity")), "/value/price", "is infinite"),
        (dict[int, Decimal], {1: Decimal("NaN")}, "/value/1", "is NaN"),
        (Any, [Plain(price=Decimal("NaN"))], "/value/0/price", "is NaN"),
    ],
)
def test_naive_datetimes_and_decimals_that_are_no_numbers_are_refused_with_their_place(
    app: App, hint: Any, value: Any, pointer: str, why: str
) -> None:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = hint
    taking = app.task(name="take")(take)

    with pytest.raises(InvalidPayload, match=why) as caught:
        taking.enqueue(value=value)

    assert caught.value.pointer == pointer
    assert f"the payload at {pointer} " in str(caught.value)


@pytest.mark.parametrize(
    ("value", "pointer", "why"),
    [
        (Open(at=NOON), "/value/at", "without a time zone"),
        (Open(inner=Open(at=[NOON])), "/value/inner/at/0", "without a time zone"),
        (Open(price=Decimal("NaN")), "/value/price", "is NaN"),
        (Open(sums={"a": math.nan}), "/value/sums/a", "is NaN"),
        (Open(sum=-math.inf), "/value/sum", "is infinite"),
        ({"sum": math.nan}, "/value/sum", "is NaN"),
    ],
)
def test_extra_fields_of_a_model_are_refused_as_its_own_are(
    app: App, value: Any, pointer: str, why: str
) -> None:
    @app.task(name="take")
    def take(value: Open) -> None: ...

    with pytest.raises(InvalidPayload, match=why) as caught:
        take.enqueue(value)

    assert caught.value.pointer == pointer


async def test_extra_fields_that_are_json_and_own_spellings_are_taken(app: App) -> None:
    @app.task(name="take")
    def take(value: Open) -> None: ...

    value = Open(number=math.nan, at=NOON.replace(tzinfo=UTC), price=Decimal("1.5"), sum=1.5, none=None)
    handle = await take.aenqueue(value)

    assert (await handle.task()).as_dict()["payload"]["value"] == {
        "number": None,
        "inner": None,
        "at": "2026-01-01T12:00:00.000005Z",
        "price": "1.5",
        "sum": 1.5,
        "none": None,
    }


@pytest.mark.parametrize(
    ("hint", "value", "pointer"),
    [
        (datetime, "2026-01-01T12:00:00", "/value"),
        (datetime | None, "2026-01-01T12:00:00", "/value"),
        (list[datetime], ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00"], "/value/1"),
        (set[datetime], ["2026-01-01T12:00:00"], "/value/0"),
        (dict[datetime, int], {"2026-01-01T12:00:00": 1}, "/value/2026-01-01T12:00:00"),
        (Plain, {"at": "2026-01-01T12:00:00"}, "/value/at"),
        (list[Watch], [{"startedAt": "2026-01-01T12:00:00"}], "/value/0/startedAt"),
        (Row, [1, "2026-01-01T12:00:00"], "/value/1"),
        (Shift, {"start": "2026-01-01T12:00:00"}, "/value/start"),
        (Stay, {"nights": [{"start": "2026-01-01T12:00:00"}]}, "/value/nights/0/start"),
        (Pause, {"at": "2026-01-01T12:00:00"}, "/value/at"),
        (Visit, {"when": "2026-01-01T12:00:00"}, "/value/when"),
        (Visit, {"others": [{}, {"when": "2026-01-01T12:00:00"}]}, "/value/others/1/when"),
        (RootModel[list[datetime]], ["2026-01-01T12:00:00"], "/value/0"),
        (Stop, {"at": "2026-01-01T12:00:00"}, "/value/at"),
    ],
)
def test_text_that_denotes_a_naive_datetime_is_refused_like_the_object(
    app: App, hint: Any, value: Any, pointer: str
) -> None:
    def take(value: Any, **others: datetime) -> None: ...

    take.__annotations__["value"] = hint
    app.task(name="take")(take)
    aware = "2026-01-01T12:00:00+01:00"
    zoned: Any = json.loads(json.dumps(value).replace('12:00:00"', '12:00:00Z"'))

    for payload, where in (({"value": value}, pointer), ({"value": zoned, "b": aware[:19]}, "/b")):
        with pytest.raises(InvalidPayload, match="a datetime without a time zone; pass an aware") as caught:
            app.sync_client.send("take", payload)
        assert caught.value.pointer == where
    assert app.sync_client.send("take", {"value": zoned, "a": aware}).created


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (Annotated[datetime, Meta(tz=False)], "2026-01-01T12:00:00"),
        (Annotated[datetime, AfterValidator(lambda at: at.replace(tzinfo=UTC))], "2026-01-01T12:00:00"),
        (Log, {"local": "2026-01-01T12:00:00", "stamp": "2026-01-01T12:00:00"}),
        (str | int, "2026-01-01T12:00:00"),
        (Shift, {}),
        (Stay, {"nights": [{}]}),
        (Epoch, {}),
    ],
    ids=["Meta", "validator", "model", "text", "dataclass", "nested", "model's default"],
)
def test_defaults_and_text_that_is_meant_to_be_naive_are_taken(app: App, hint: Any, value: Any) -> None:
    def take(value: Any) -> None: ...

    take.__annotations__["value"] = hint
    app.task(name="take")(take)

    assert app.sync_client.send("take", {"value": value}).created


async def test_what_a_model_declares_to_be_naive_or_spells_by_itself_is_taken(app: App) -> None:
    got: list[Log] = []

    @app.task(name="keep")
    async def keep(log: Log) -> None:
        got.append(log)

    log = Log(local=NOON, stamp=NOON)
    await keep.aenqueue(log=log)
    await drained(app)

    assert got == [Log(local=NOON, stamp=datetime.fromtimestamp(NOON.timestamp(), UTC))]


async def test_validators_of_attrs_and_dataclasses_are_asked(app: App) -> None:
    @app.task(name="load")
    async def load(crate: Crate) -> None: ...

    heavy: Any = {"line": {"sku": "", "price": "1", "on": "2026-01-01"}, "weight": -1}
    with pytest.raises(InvalidPayload, match="must be >= 0"):
        await load.aenqueue(crate=heavy)


async def test_constraints_of_annotations_are_checked(app: App) -> None:
    def is_even(number: int) -> int:
        if number % 2:
            raise ValueError("must be even")
        return number

    @app.task(name="pair")
    async def pair(number: Annotated[int, AfterValidator(is_even)], at: AnyUrl | None = None) -> None: ...

    await pair.aenqueue(number=2, at=AnyUrl("https://example.org/"))
    with pytest.raises(InvalidPayload, match="must be even") as caught:
        await pair.aenqueue(number=1)
    assert caught.value.pointer == "/number"


async def test_parameters_beside_any_others_are_converted_too(app: App) -> None:
    got: list[Any] = []

    @app.task(name="mixed")
    async def mixed(item: Item, **rest: int) -> None:
        got.append((item, rest))

    wrong: Any = {"more": "text"}
    await mixed.aenqueue(Item(SKU="a", number=1), more=3)
    with pytest.raises(InvalidPayload, match="Expected `int`"):
        await mixed.aenqueue(Item(SKU="a", number=1), **wrong)
    await drained(app)

    assert got == [(Item(SKU="a", number=1), {"more": 3})]


async def test_a_task_whose_payload_no_longer_validates_is_dead_with_the_reason() -> None:
    store = MemoryStore()

    async def before(item: dict[str, Any]) -> None: ...
    async def now(item: Item) -> None: ...

    handle = await App(store).task(name="pay")(before).aenqueue(item={"SKU": "a", "number": 0})
    later = App(store)
    later.task(name="pay")(now)
    await drained(later)

    task = await handle.task()
    assert (task.state, task.attempt) == (State.DEAD, 1)
    assert task.error is not None
    assert "does not fit pay(item: " in task.error.message
    assert "Input should be greater than 0 at /item/number" in task.error.message


async def test_a_result_that_no_longer_fits_comes_as_plain_values(app: App) -> None:
    @app.task(name="pay")
    async def pay() -> Item:
        wrong: Any = {"SKU": "a", "number": 0}
        return wrong

    handle = await pay.aenqueue()
    await drained(app)

    assert await handle.result(timeout=10) == {"SKU": "a", "number": 0}


# -- chains, processes, secrets ----------------------------------------------------------------------


class Receipt(BaseModel):
    total: Decimal
    kind: Literal["cash", "card"] = "cash"


def raises_anything(value: Any) -> Any:
    raise KeyError(value)


@pytest.mark.parametrize(
    ("hint", "value", "why"),
    [
        (int, "s3cret", "returned a str, which does not fit its annotation int: Expected `int`, got `str`; "),
        (None, 3, "returned an int, which does not fit its annotation None: Expected `null`, got `int`; "),
        (type(None), ["s3cret"], "returned a list, which does not fit its annotation None: Expected `null`"),
        (int, None, "returned None, which does not fit its annotation int: Expected `int`, got `null`; "),
        (
            list[int],
            [1, "s3cret"],
            "a list, which does not fit its annotation list[int]: Expected `int`, got",
        ),
        (
            Receipt,
            {"kind": "cash"},
            "a dict, which does not fit its annotation Receipt: Field required at /total",
        ),
        (Receipt, None, "returned None, which does not fit its annotation Receipt: Input should be"),
        (Mood, "s3cret", "returned a str, which does not fit its annotation Mood; `result()` gives"),
        (
            Annotated[int, AfterValidator(raises_anything)],
            1,
            "returned an int, which does not fit its annotation",
        ),
    ],
)
async def test_a_result_that_does_not_fit_is_named_once_for_its_type(
    app: App, hint: Any, value: Any, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def give() -> Any:
        return value

    give.__annotations__["return"] = hint
    given = app.task(name="give")(give)

    first, _ = [await given.aenqueue(), await given.aenqueue()]
    await drained(app, slots=1)

    lines = [one.getMessage() for one in caplog.records if "does not fit" in one.getMessage()]
    assert len(lines) == 1
    assert lines[0].startswith(f"task {first.id} of type give returned ")
    assert why in lines[0]
    assert "s3cret" not in lines[0]
    assert await first.state() is State.COMPLETED


async def test_a_result_that_fits_or_is_not_annotated_is_not_named(
    app: App, caplog: pytest.LogCaptureFixture
) -> None:
    results: dict[str, tuple[Any, Any]] = {
        "none": (None, None),
        "never": (NoReturn, 3),
        "any": (Any, {1, 2}),
        "optional": (int | None, None),
        "model": (Receipt, Receipt(total=Decimal(2))),
        "dict": (dict[int, datetime], {1: datetime(2026, 1, 1, tzinfo=UTC)}),
    }
    for name, (hint, value) in results.items():

        async def give(value: Any = value) -> Any:
            return value

        give.__annotations__["return"] = hint
        await app.task(name=name)(give).aenqueue()
    await drained(app)

    assert [one.state for one in [task async for task in app.operator.every()]] == [State.COMPLETED] * 6
    assert not [one for one in caplog.records if "does not fit" in one.getMessage()]


async def test_a_result_is_passed_on_as_the_next_handler_declares_it(app: App) -> None:
    @app.task(name="pick")
    async def pick(number: int) -> Item:
        return Item(SKU="a", number=number)

    @app.task(name="sell")
    async def sell(item: Item) -> Decimal:
        return Decimal(item.number)

    @app.task(name="add")
    async def add(items: list[Item]) -> int:
        return sum(item.number for item in items)

    first = await app.client.enqueue(chain(pick.step(7), sell.step(item=RESULT)))
    *_, last = await app.client.enqueue_group([pick.step(1), pick.step(2)], then=add.step(items=RESULT))
    await drained(app)

    (following,) = first.following
    assert await (await app.client.get(following)).result(timeout=10) == Decimal(7)
    assert await last.result(timeout=10) == 3


async def test_a_child_process_gets_what_is_declared() -> None:
    parcel = child_tasks.Parcel(item=child_tasks.Item(number=2), price=Decimal("1.50"))
    handle = await child_tasks.pack.aenqueue(parcel=parcel, day=date(2026, 1, 1))
    await drained(child_tasks.app)

    assert await handle.result(timeout=10) == {date(2026, 1, 1): parcel}


class Login(BaseModel):
    user: str
    word: SecretStr = Field(alias="passe")
    others: dict[int, list[SecretStr]] = {}


async def test_secrets_of_models_arrive_and_are_shown_nowhere(app: App) -> None:
    got: list[Login] = []

    @app.task(name="log_in", max_attempts=1)
    async def log_in(login: Login, *, fails: bool) -> Login:
        got.append(login)
        if fails:
            raise ValueError(f"no entry with {login.word.get_secret_value()}")
        return login

    login = Login(user="ann", passe=SecretStr("hunter2"), others={1: [SecretStr("swordfish")]})
    good, bad = [await log_in.aenqueue(login, fails=fails) for fails in (False, True)]
    await drained(app)

    assert got == [login, login]
    assert await good.result(timeout=10) == login
    assert {"passe", "others"} <= {*log_in.spec.defaults.secret}
    for handle in (good, bad):
        task = await handle.task()
        assert task.as_dict()["payload"]["login"]["user"] == "ann"
        assert "hunter2" not in str(task.as_dict())
        assert "swordfish" not in str(task.as_dict())
        assert b"hunter2" in task.payload


async def test_secrets_of_models_are_encrypted_in_the_store() -> None:
    store = MemoryStore()
    app = App(store, encryption=Keyring([("k1", b"1" * 32)]))

    @app.task(name="log_in")
    async def log_in(login: Login) -> Login:
        return login

    login = Login(user="ann", passe=SecretStr("hunter2"), others={1: [SecretStr("swordfish")]})
    handle = await log_in.aenqueue(login)
    await drained(app)

    assert await handle.result(timeout=10) == login
    (stored,) = (await store.find(Filter(), Page())).items
    for data in (stored.payload, stored.result or b""):
        assert b"ann" in data
        assert b"hunter2" not in data
        assert b"swordfish" not in data


def test_programs_without_such_types_do_not_import_their_libraries() -> None:
    program = """
import sys
from windlass import App, WorkerSettings
app = App("memory://")
@app.task
def add(a: int, b: str = "") -> int: return a
handle = add.enqueue(a=1)
app.run_worker(WorkerSettings(drain=True))
assert handle.result() == 1
print(sorted({"pydantic", "pydantic_core", "attr", "attrs"} & {*sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
