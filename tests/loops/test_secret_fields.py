"""Secret fields by name: a misspelt one is refused when its task type is declared, and by each call."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field

from windlass import App, Context, Filter, InvalidOption, Page


class Card(msgspec.Struct, rename="camel"):
    """A Struct that contains itself, with other names in JSON."""

    pan_number: str
    parts: "list[Card]" = []


class Account(TypedDict):
    iban: str


@dataclass
class Wallet:
    card: Card | None


class Payment(BaseModel):
    card_no: str = Field(alias="cardNo")
    parts: "list[Payment]" = []


class Form(BaseModel, extra="allow"):
    name: str


def plain(card: str, note: str, *, ctx: Context) -> None: ...
def bare(card, meta): ...  # type: ignore[no-untyped-def]  # as untyped programs write it
def open_end(card: str, **others: Any) -> None: ...
def modelled(card: Card, wallet: Wallet) -> None: ...
def of_pydantic(payment: Payment | None, account: Account) -> None: ...
def listed(wallets: list[dict[str, Wallet]], pair: tuple[Account, int]) -> None: ...
def with_form(card: str, form: Form) -> None: ...
def with_dict(card: str, meta: dict[str, Any]) -> None: ...
def returns_dict(card: str) -> dict[str, Any]: ...
def returns_objects(card: str) -> dict[str, object]: ...
def takes_object(card: str, other: dict[str, object]) -> None: ...
def returns_account(card: str) -> Account: ...
def unannotated(card: str): ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("handler", "secret"),
    [
        (plain, ["card", "note"]),
        (modelled, ["panNumber", "card.panNumber", "card.parts.panNumber", "wallet.card.parts"]),
        (of_pydantic, ["cardNo", "payment.cardNo", "payment.parts.parts.cardNo", "account.iban"]),
        (listed, ["wallets", "panNumber", "wallets.any.card.panNumber", "pair.iban"]),
        (returns_account, ["iban", "card"]),
        # Nobody knows what these have:
        (bare, ["meta.iban", "iban", "card.number"]),
        (open_end, ["iban", "bank.iban"]),
        (with_form, ["iban", "form.iban"]),
        (with_dict, ["iban", "meta.bank.iban"]),
        (returns_dict, ["iban", "bank.iban"]),
        # No schema describes `object`:
        (returns_objects, ["card", "iban"]),
        (takes_object, ["card", "iban", "other.iban"]),
    ],
)
def test_what_a_payload_or_an_annotated_result_may_have_can_be_secret(
    handler: Callable[..., Any], secret: list[str]
) -> None:
    app = App("memory://", secret=["of_every_type"])

    declared = app.task(name="pay", secret=secret)(handler)

    assert declared.spec.defaults.secret == ("of_every_type", *secret)


@pytest.mark.parametrize(
    ("handler", "secret", "meant"),
    [
        (plain, "crad", "card"),
        (plain, "iban", ""),
        (plain, "ctx", ""),
        (plain, "card.number", ""),
        (unannotated, "iban", ""),
        (modelled, "pan_number", "panNumber"),
        (modelled, "card.pan_number", "card.panNumber"),
        (modelled, "wallet.crad.panNumber", "wallet.card.panNumber"),
        (of_pydantic, "card_no", "cardNo"),
        (of_pydantic, "payment.parts.cardNr", "payment.parts.cardNo"),
        (listed, "wallet", "wallets"),
        (returns_account, "ibn", "iban"),
        # Also where others are possible, as it is more likely misspelt:
        (open_end, "crad", "card"),
        (bare, "crad", "card"),
        (with_dict, "mata.iban", "meta.iban"),
        (returns_dict, "crad", "card"),
        (returns_objects, "crad", "card"),
    ],
)
def test_a_misspelt_name_is_refused_with_what_was_meant(
    handler: Callable[..., Any], secret: str, meant: str
) -> None:
    app = App("memory://")

    with pytest.raises(InvalidOption) as caught:
        app.task(name="pay", secret=["card", secret] if handler is plain else [secret])(handler)

    assert str(caught.value) == (
        f"secret names the field {secret!r}, which the handler of 'pay' neither takes nor is "
        "annotated to return" + (f"; did you mean {meant!r}?" if meant else "")
    )
    assert not app.types


@pytest.mark.parametrize(
    ("secret", "hint"),
    [(["crad"], "; did you mean 'card'?"), (["card", "ntoe"], "; did you mean 'note'?"), (["iban"], "")],
)
async def test_a_name_that_a_caller_misspells_is_refused_as_at_the_declaration(
    secret: list[str], hint: str
) -> None:
    app = App("memory://", secret=["of_every_type"])
    pay = app.task(name="pay", secret=["card"])(plain)
    given = {"card": "1", "note": "2"}
    said = []

    with pytest.raises(InvalidOption) as caught:
        pay.using(secret=secret)
    said.append(str(caught.value))
    for way in (app.client.send("pay", given, secret=secret), _scheduled(app, given, secret)):
        with pytest.raises(InvalidOption) as caught:
            await way
        said.append(str(caught.value))

    wrong = (
        f"secret names the field {secret[-1]!r}, which the handler of 'pay' neither takes nor is annotated"
    )
    assert said == [f"{wrong} to return{hint}"] * 3
    assert not (await app.operator.find(Filter(), Page(limit=1))).items


async def test_a_caller_names_fields_of_the_payload_of_the_app_and_of_types_unknown_here() -> None:
    app = App("memory://", secret=["of_every_type"])
    pay = app.task(name="pay", aliases=["charge"])(plain)
    given = {"card": "1", "note": "2"}

    marked = await pay.using(secret=["note", "of_every_type"]).aenqueue(**given)
    sent = await app.client.send("charge", given, secret=["card"])
    unknown = await app.client.send("elsewhere", given, secret=["crad"])

    assert [(await one.task()).secret for one in (marked, sent, unknown)] == [
        ("of_every_type", "note"),
        ("of_every_type", "card"),
        ("of_every_type", "crad"),
    ]


async def test_a_stored_schedule_with_a_misspelt_name_can_be_changed() -> None:
    app = App("memory://")
    await _scheduled(app, {"card": "1", "note": "2"}, ["crad"])
    app.task(name="pay")(plain)

    changed = await app.operator.schedules.change("nightly", "2h")

    assert changed.secret == ("crad",)
    with pytest.raises(InvalidOption, match="did you mean 'card'"):
        await app.operator.schedules.change("nightly", secret=["crad"])


async def _scheduled(app: App, payload: dict[str, str], secret: list[str]) -> object:
    return await app.operator.schedules.add("nightly", "pay", "1h", payload, secret=secret)
