"""Secret fields by name: a misspelt one is refused when its task type is declared."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest
from pydantic import BaseModel, Field

from windlass import App, Context, InvalidOption


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
