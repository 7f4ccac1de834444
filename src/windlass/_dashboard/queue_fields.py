"""The settings of a queue: in words, as the fields of a form, and as the changes that a form asks for."""

from typing import Any

from msgspec import Struct

from .._documents.queues import QueueDocument, RetentionDocument, SettingsDocument
from .._http.web.problems import Problem
from .._model.queue import Fairness, Level
from .._policy.input.quote import counted, quoted
from .form_fields import duration_field, lines_of, seconds_of, whole_of
from .view import View

_SHOWN = 20  # weights that the page of a queue lists
ENDED_STATES = ("completed", "cancelled", "dead")
FAIRNESS = {
    Fairness.FIFO: "In order of priority and age, whatever the tenant",
    Fairness.ROUND_ROBIN: "Tenants in turn, in proportion to their weights",
    Fairness.RANDOM: "Tenants at random, in proportion to their ready tasks",
}


class Fact(Struct, frozen=True):
    """A setting in words; `declared`: a program declares it in code."""

    label: str
    lines: list[str]
    declared: bool


def setting_facts(queue: QueueDocument) -> list[Fact]:
    """Return the settings of a queue in words; none if the caller may not see them."""
    settings = queue.settings
    if settings is None:
        return []
    told = {
        "fairness": ("Order between tenants", [FAIRNESS[settings.fairness]]),
        "weights": ("Weights", _weights(settings)),
        "shares": (
            "Shares of priorities",
            [f"{level} {share} %" for level, share in settings.shares.items()],
        ),
        "ageing": ("Ageing", [_ageing(settings.ageing)]),
        "windows": ("Hours", settings.windows or ["At any time"]),
        "retention": ("Ended tasks are kept", _retention(settings.retention)),
        "stripes": ("Stripes", [str(settings.stripes)] if settings.stripes > 1 else []),
    }
    declared = queue.declared or []
    return [Fact(label, lines, name in declared) for name, (label, lines) in told.items() if lines]


def setting_fields(settings: SettingsDocument) -> dict[str, str]:
    """Return the text of each field of the form."""
    kept = settings.retention
    return {
        "fairness": settings.fairness.value,
        "weights": "\n".join(f"{tenant}={weight}" for tenant, weight in settings.weights.items()),
        **{f"share-{level}": str(settings.shares.get(level, "")) for level in Level},
        "ageing": duration_field(settings.ageing),
        "windows": "\n".join(settings.windows),
        "retention": "types" if kept is None else "queue",
        **{
            f"keep-{state}": "" if kept is None else duration_field(getattr(kept, state))
            for state in ENDED_STATES
        },
        "stripes": str(settings.stripes),
    }


def setting_changes(view: View, before: SettingsDocument) -> dict[str, Any]:
    """Return the body of the request that makes the settings what the form says."""
    weights = _given_weights(view)
    changes: dict[str, Any] = {
        "fairness": view.field("fairness"),
        "shares": _given_shares(view),
        "ageing": seconds_of(view.field("ageing"), "ageing"),
        "windows": lines_of(view.field("windows")),
        "retention": None,
        "stripes": whole_of(view.field("stripes"), "stripes"),
    }
    if weights != before.weights:  # else they need not be repeated, and go with another order of tenants
        changes["weights"] = {tenant: weights.get(tenant) for tenant in {*before.weights, *weights}}
    if view.field("retention") == "queue":
        changes["retention"] = {
            state: seconds_of(view.field(f"keep-{state}"), f"the retention of {state} tasks")
            for state in ENDED_STATES
        }
    return changes


def _given_weights(view: View) -> dict[str, int | None]:
    pairs = [line.rpartition("=") for line in lines_of(view.field("weights"))]
    for _, equals, text in pairs:
        if not (equals and text):
            raise Problem("invalid-option", "weights are written one a line, as tenant=number")
    return {tenant.strip(): whole_of(text, f"the weight of {quoted(tenant)}") for tenant, _, text in pairs}


def _given_shares(view: View) -> dict[Level, int | None]:
    return {level: whole_of(view.field(f"share-{level}"), f"the share of {level}") for level in Level}


def _weights(settings: SettingsDocument) -> list[str]:
    weights = settings.weights
    shown = [f"{tenant or '(no tenant)'} {weight}" for tenant, weight in [*weights.items()][:_SHOWN]]
    more = len(weights) - len(shown)
    return [*shown, f"and {counted(more, 'tenant')} more"] if more else shown


def _ageing(seconds: float | None) -> str:
    if seconds is None:
        return "Strict: a higher priority always goes first"
    return f"{duration_field(seconds)} of waiting outweighs one priority"


def _retention(kept: RetentionDocument | None) -> list[str]:
    if kept is None:
        return ["As their task types declare"]
    spans = ((state, getattr(kept, state)) for state in ENDED_STATES)
    return [f"{state} {'for ever' if span is None else duration_field(span)}" for state, span in spans]
