"""`windlass limits`, and setting whose turn it is in a queue."""

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
    """Claim so many tasks of the queue mail, as a worker that keeps them; says how many it got."""

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
    made = run(
        "limits", "set", "api", "-q", "mail", "--by", "account_id", "--running", "3", "--rate", "100/m"
    )
    changed = run("limits", "change", "api", "--running", "2", "--queue", "", "--json").row
    listed = run("limits", "list", "--json").row
    shown = run("limits", "show", "api").out
    removed = run("limits", "remove", "api", "--json").row

    assert made.out == "limit api: queue mail, each account_id for itself, 3 at once, 100/m, burst 2\n"
    assert (changed["running"], changed["queue"], changed["by"]) == (2, None, "account_id")
    assert listed["rate"] == pytest.approx(100 / 60)
    assert (listed["burst"], listed["in_use"]) == (2, [])
    assert "every task" in shown
    assert "at most 2" in shown
    assert removed == {"limit": "api", "removed": True}
    assert "nothing is limited" in run("limits", "list").err


def test_what_is_in_use_is_shown(run: Run, claim: Callable[[int], int]) -> None:
    for account in ("ada", "ada", "ada", "bob"):
        run("enqueue", "t", f'{{"account_id": "{account}"}}', "-q", "mail")
    run("limits", "set", "api", "--by", "account_id", "--running", "2")
    run("limits", "set", "whole", "-q", "mail", "--running", "10", "--rate", "5/h", "--burst", "7")

    got = claim(10)
    head, api, whole = run("limits", "list").out.splitlines()
    rows = {row["name"]: row for row in run("limits", "list", "--json").rows}
    shown = run("limits", "show", "api").out

    assert got == 3
    assert head.split() == ["name", "for", "by", "running", "rate", "starts", "left", "busiest"]
    assert api.split() == ["api", "every", "task", "account_id", "3", "ada", "2/2,", "bob", "1/2"]
    assert whole.split() == ["whole", "queue", "mail", "3/10", "5/h", "4.0/7"]
    assert [(one["value"], one["running"]) for one in rows["api"]["in_use"]] == [("ada", 2), ("bob", 1)]
    assert rows["whole"]["in_use"][0]["tokens"] == pytest.approx(4, abs=0.1)
    assert shown.splitlines()[-2].split() == ["ada", "2/2"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("set", "api"), 2, "limits nothing"),
        (("set", "api", "--running", "x"), 2, "--running"),
        (("set", "api", "--running", "-1"), 2, "0 to 1,000,000"),
        (("set", "api", "--rate", "fast"), 2, "10/s"),
        (("set", "api", "--running", "1", "--by", "a b"), 2, "payload field"),
        (("set", "\x1b[2J", "--running", "1"), 2, "not a name"),
        (("change", "api"), 2, "at least one option"),
        (("change", "api", "--running", "1"), 3, "no limit 'api'"),
        (("show", "api"), 3, "no limit 'api'"),
        (("remove", "api"), 3, "no limit 'api'"),
    ],
)
def test_what_cannot_be_done_says_why(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    run("migrate")

    ran = run("limits", *arguments)

    assert ran.code == code
    assert message in ran.err
    assert "\x1b" not in ran.err
    assert run("limits", "list", "--json").rows == []


def test_values_of_others_are_escaped(run: Run, claim: Callable[[int], int]) -> None:
    run("enqueue", "t", '{"account_id": "\\u001b[2J"}', "-q", "mail")
    run("limits", "set", "api", "--by", "account_id", "--running", "2")
    claim(1)

    assert "\x1b" not in run("limits", "list").out
    assert "\x1b" not in run("limits", "show", "api").out


# -- queues set --------------------------------------------------------------------------------------


def test_a_queue_is_set_bit_by_bit(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")
    fair = ("--fairness", "round_robin", "--weight", "acme=3", "--weight", "bob=2")

    first = run("queues", "set", "mail", *fair, "--share", "low=10", "--ageing", "60s")
    second = run("queues", "set", "mail", "--weight", "bob=default", "--ageing", "strict", "--json").row
    listed = run("queues", "list").out.splitlines()[1]
    shown = run("queues", "show", "mail").out.splitlines()

    assert first.out == "mail: round_robin, 2 weights, 10% low, ageing 1 m\n"
    assert second["weights"] == {"acme": 3}
    assert second["shares"] == {"low": 10}
    assert second["ageing"] is None
    assert listed.endswith("round_robin, 1 weight, 10% low")
    assert ["weights", "acme", "3"] in [line.split() for line in shown]
    assert run("queues", "set", "mail", "--fairness", "fifo", "--share", "low=default").out == "mail: fifo\n"
    assert run("queues", "show", "mail", "--json").row["weights"] == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "at least one option"),
        (("--fairness", "fair"), "round_robin"),
        (("--weight", "acme"), "NAME=3"),
        (("--weight", "acme=lots"), "NAME=3"),
        (("--weight", "acme=3"), "weights are for round_robin"),
        (("--fairness", "round_robin", "--weight", "acme=1000"), "1 to 100"),
        (("--share", "lowest=10"), "one of high, medium, low"),
        (("--share", "low=100"), "1 to 99"),
        (("--ageing", "soon"), "duration"),
        (("--fairness", "random", "--stripes", "4"), "leave stripes at 1"),
    ],
)
def test_a_senseless_setting_changes_nothing(run: Run, arguments: tuple[str, ...], message: str) -> None:
    run("migrate")

    ran = run("queues", "set", "mail", *arguments)

    assert ran.code == 2
    assert message in ran.err
    assert run("queues", "list", "--json").rows == []


def test_setting_or_showing_an_unknown_queue_is_doubted(run: Run) -> None:
    run("enqueue", "t", "-q", "mail")

    assert "did you mean 'mail'?" in run("queues", "set", "mial", "--fairness", "random").err
    assert "did you mean 'mail'?" in run("queues", "show", "maill").err


# -- workers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--reserve", "lowest=1"), "one of high, medium, low"),
        (("--reserve", "low"), "a number for each level, as in low=2, not 'low'"),
        (("--reserve", "low=x"), "reserve is a whole number"),
        (("--reserve", "low=40"), "32 slots cannot reserve 40"),
    ],
)
def test_a_senseless_reserve_is_refused(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = run("worker", "shop:app", *arguments)

    assert ran.code == 2
    assert message in ran.err
