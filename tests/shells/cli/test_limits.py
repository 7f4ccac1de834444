"""`windlass limits`: list, show, set, change and remove."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from windlass import App
from windlass._model.lease import Claim, Heartbeat
from windlass._model.record import Worker

from .conftest import Run


@pytest.fixture
def claim(folder: Path) -> Callable[[int], int]:
    """Claim up to `number` tasks of the queue mail without settling them; return how many were claimed."""

    def take(number: int) -> int:
        async def work() -> int:
            app = App("sqlite:///windlass.db")
            await app.store.open()
            beat = Heartbeat(
                session="s", worker=Worker(name="w"), lease_for=timedelta(seconds=600), opening=True
            )
            await app.store.heartbeat(beat)
            claimed = await app.store.claim(Claim(session="s", queues=("mail",), limit=number, number=1))
            await app.close()
            return len(claimed)

        return asyncio.run(work())

    return take


def test_a_limit_is_set_shown_changed_and_removed(run: Run) -> None:
    scope = ("-q", "mail", "--by", "account_id")
    made = run("limits", "set", "api", "--create", *scope, "--running", "3", "--rate", "100/m")
    lowered = run("limits", "set", "api", "--running", "0")
    changed = run("limits", "change", "api", "--running", "2", "--queue", "", "--all", "--json").row
    listed = run("limits", "list", "--json").row
    shown = run("limits", "show", "api").out
    removed = run("limits", "remove", "api", "--json").row

    assert made.out == "limit api: queue mail, per account_id, 3 at once, 100/m, burst 2\n"
    assert lowered.out == "limit api: queue mail, per account_id, 0 at once, 100/m, burst 2\n"
    assert (changed["running"], changed["queue"], changed["by"]) == (2, None, "account_id")
    assert listed["rate"] == pytest.approx(100 / 60)
    assert (listed["burst"], listed["in_use"]) == (2, [])
    assert "all tasks" in shown
    assert "at most 2" in shown
    assert removed == {"name": "api", "removed": True}
    assert "there are no limits" in run("limits", "list").err


def test_the_usage_is_shown(run: Run, claim: Callable[[int], int]) -> None:
    for account in ("ada", "ada", "ada", "bob"):
        run("enqueue", "t", f'{{"account_id": "{account}"}}', "-q", "mail")
    run("limits", "set", "api", "--create", "--all", "--by", "account_id", "--running", "2")
    run(
        "limits", "set", "whole", "--create", "-q", "mail", "--running", "10", "--rate", "5/h", "--burst", "7"
    )

    got = claim(10)
    head, api, whole = run("limits", "list").out.splitlines()
    rows = {row["name"]: row for row in run("limits", "list", "--json").rows}
    shown = run("limits", "show", "api").out

    assert got == 3
    assert head.split() == ["name", "applies", "to", "by", "running", "rate", "starts", "left", "busiest"]
    assert api.split() == ["api", "all", "tasks", "account_id", "3", "ada", "2/2,", "bob", "1/2"]
    assert whole.split() == ["whole", "queue", "mail", "3/10", "5/h", "4.0/7"]
    assert [(one["value"], one["running"]) for one in rows["api"]["in_use"]] == [("ada", 2), ("bob", 1)]
    assert rows["whole"]["in_use"][0]["tokens"] == pytest.approx(4, abs=0.1)
    assert shown.splitlines()[-2].split() == ["ada", "2/2"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("set", "api"), 2, "at least one option"),
        (("set", "api", "--create", "-q", "mail"), 2, "needs running, rate or both"),
        (("set", "api", "--running", "x"), 2, "--running"),
        (("set", "api", "--create", "--running", "-1"), 2, "0 to 1,000,000"),
        (("set", "api", "--rate", "fast"), 2, "10/s"),
        (("set", "api", "--create", "--running", "1", "--by", "a b"), 2, "payload field"),
        (("set", "\x1b[2J", "--create", "--running", "1"), 2, "not a valid name"),
        (("set", "api", "--running", "1"), 3, "there is no limit 'api'; create=True (--create on the"),
        (("set", "api", "--create", "--running", "1"), 2, "would apply to all tasks"),
        (("set", "api", "--create", "--all", "-q", "mail", "--running", "1"), 2, "contradict each other"),
        (("change", "api"), 2, "at least one option"),
        (("change", "api", "--running", "1"), 3, "no limit 'api'"),
        (("show", "api"), 3, "no limit 'api'"),
        (("remove", "api"), 3, "no limit 'api'"),
    ],
)
def test_an_invalid_command_is_refused(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    run("migrate")

    ran = run("limits", *arguments)

    assert ran.code == code
    assert message in ran.err
    assert "\x1b" not in ran.err
    assert run("limits", "list", "--json").rows == []


def test_a_misspelt_name_limits_nothing_and_a_limit_keeps_its_scope(run: Run) -> None:
    run("limits", "set", "api", "--create", "--type", "g", "--rate", "10/s")

    misspelt = run("limits", "set", "apii", "--rate", "1/m")
    widened = run("limits", "set", "api", "--type", "")
    changed = run("limits", "set", "api", "--rate", "50/s")

    assert (misspelt.code, "did you mean 'api'?" in misspelt.err) == (3, True)
    assert (widened.code, "would apply to all tasks" in widened.err) == (2, True)
    assert changed.out == "limit api: type g, 50/s, burst 50\n"
    assert [row["name"] for row in run("limits", "list", "--json").rows] == ["api"]


def test_values_of_others_are_escaped(run: Run, claim: Callable[[int], int]) -> None:
    run("enqueue", "t", '{"account_id": "\\u001b[2J"}', "-q", "mail")
    run("limits", "set", "api", "--create", "--all", "--by", "account_id", "--running", "2")
    claim(1)

    assert "\x1b" not in run("limits", "list").out
    assert "\x1b" not in run("limits", "show", "api").out
