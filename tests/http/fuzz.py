"""Asking everything that the document allows, and what it does not: schemathesis against a served store."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
import schemathesis
from msgspec import Struct
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from windlass._http.web.ndjson import NDJSON

ENDLESS = ["/events", "/tasks/{id}/events"]
"""Answers that go on and on: they have tests of their own."""

LONGEST_WAIT = 0.02
"""Seconds, whatever was made up: a request that waits teaches nothing more for it."""

_TAKEN = ["2xx", "3xx", 401, 403, 404, 409, 410, 422, 431, 507]  # Types alone do not say what goes with what.
_REFUSED = [400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 431]
_PECULIAR: list[dict[str, Any]] = [
    # Each line is answered by a line, whatever it is.
    {"include-path": "/tasks/stream", "checks": {"negative_data_rejection": {"enabled": False}}},
    # What matches nothing is answered with no line at all.
    {"include-path": "/export", "checks": {"response_schema_conformance": {"enabled": False}}},
    # DELETE cancels a task: its record and attempts stay.
    {"include-path-regex": "^/tasks/{id}", "checks": {"use_after_free": {"enabled": False}}},
    # A name may hold slashes: /queues/a/pause is also a queue, and may be asked as one.
    {"include-path-regex": "^/(queues|schedules)/", "checks": {"unsupported_method": {"enabled": False}}},
]


class Verdict(Struct):
    """What came of it."""

    seed: int
    requests: int = 0
    statuses: Counter[int] = msgspec.field(default_factory=Counter)
    failures: dict[str, str] = msgspec.field(default_factory=dict)

    def __add__(self, other: "Verdict") -> "Verdict":
        failures = {**self.failures, **other.failures}
        return Verdict(self.seed, self.requests + other.requests, self.statuses + other.statuses, failures)

    def __str__(self) -> str:
        told = ", ".join(f"{number:,} x {status}" for status, number in sorted(self.statuses.items()))
        wrong = "".join(f"\n\n{what}\n{how}" for what, how in self.failures.items())
        count = f"{self.requests:,} requests (from seed {self.seed} on)"
        return f"{count}: {told}; {len(self.failures)} failures{wrong}"


def fuzzed(
    url: str, key: str | None, *, seed: int, examples: int, at_bounds: bool, hidden: Sequence[str] = ()
) -> Verdict:
    """Ask each operation by its examples, at random, wrongly, along its links; and at every bound.

    Without a key, of a server that needs none: but for the first key, after which it would. No response may
    have one of the texts in `hidden`.
    """
    schema = schemathesis.openapi.from_url(
        f"{url}/openapi.json",
        config=SchemathesisConfig.from_dict(
            {
                "seed": seed,
                "base-url": url,
                "headers": {} if key is None else {"Authorization": f"Bearer {key}"},
                "request-timeout": 20,
                "suppress-health-check": ["too_slow"],  # so is a busy machine
                "generation": {"max-examples": examples, "no-shrink": True, "database": "none"},
                "phases": {"coverage": {"enabled": at_bounds}},
                "checks": {
                    "not_a_server_error": {
                        "expected-statuses": ["2xx", "3xx", "4xx", 507]
                    },  # a quota is used up
                    "ignored_auth": {"enabled": key is not None},
                    "missing_required_header": {"enabled": key is not None},
                    "positive_data_acceptance": {"expected-statuses": _TAKEN},
                    # Without keys, a missing Authorization is no violation; the run with keys shows the rest.
                    "negative_data_rejection": {"expected-statuses": _REFUSED, "enabled": key is not None},
                },
                "operations": _PECULIAR,
            }
        ),
    ).exclude(path=ENDLESS if key is not None else [*ENDLESS, "/keys"])
    verdict = Verdict(seed=seed)
    for event in from_schema(schema).execute():
        match event:
            case events.ScenarioFinished():
                _count(event.recorder, verdict, hidden)
            case events.NonFatalError():
                verdict.failures[f"{event.label}: it could not be asked"] = str(event.info)
            case events.FatalError():
                raise event.exception
            case _:
                pass
    return verdict


def _count(recorder: Any, verdict: Verdict, hidden: Sequence[str]) -> None:
    for interaction in recorder.interactions.values():
        verdict.requests += 1
        if interaction.response is not None:
            verdict.statuses[interaction.response.status_code] += 1
            told = f"{interaction.response.headers} {interaction.response.text}"
            if found := [text for text in hidden if text in told]:
                asked = f"{interaction.request.method} {interaction.request.uri}"
                verdict.failures[f"{asked}: it tells {found}"] = told[:1_500]
    for case_id, checks in recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                asked = recorder.cases[case_id].value.operation.label
                failure = check.failure_info.failure
                told = f"{failure.message}\n{check.failure_info.code_sample}"
                verdict.failures.setdefault(f"{asked}: {check.name}: {failure.title}", told[:1_500])


@schemathesis.hook("before_call")
def _in_haste(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    for place in (case.query, case.body):
        waits = place.get("wait") if isinstance(place, dict) else None
        if isinstance(waits, int | float) and waits > LONGEST_WAIT:
            place["wait"] = LONGEST_WAIT


@schemathesis.serializer(NDJSON)
def _a_line(_: Any, value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


@schemathesis.deserializer(NDJSON)
def _last_line(_: Any, response: Any) -> Any:
    return msgspec.json.decode(response.content.splitlines()[-1])
