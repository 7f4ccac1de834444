"""`windlass dead`: list, show, replay and discard."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from .conftest import Run

Dead = Callable[..., list[str]]


def states(run: Run) -> dict[str, str]:
    return {row["id"]: row["state"] for row in run("tasks", "list", "--json").rows}


def test_dead_letters_are_listed_with_their_errors(run: Run, dead: Dead) -> None:
    (task_id,) = dead("no such customer")
    run("enqueue", "shop.explode")

    head, line = run("dead", "list").out.splitlines()

    assert head.split()[:4] == ["id", "died", "type", "error"]
    assert task_id in line
    assert "Fatal: no such customer" in line
    assert [row["id"] for row in run("dead", "list", "--json").rows] == [task_id]


@pytest.mark.parametrize(
    ("options", "number"),
    [(("--error", "alpha"), 1), (("--error", "a"), 2), (("--since", "1h"), 2), (("--until", "1h"), 0)],
)
def test_filters_narrow_the_list(run: Run, dead: Dead, options: tuple[str, ...], number: int) -> None:
    dead("alpha", "beta")

    assert len(run("dead", "list", "--json", *options).rows) == number


def test_only_dead_tasks_are_shown(run: Run, dead: Dead, enqueue: Callable[..., str]) -> None:
    (task_id,) = dead("boom")
    living = enqueue("shop.explode")

    assert "Fatal: boom" in run("dead", "show", task_id).out
    assert run("dead", "show", task_id, "--json").row["state"] == "dead"
    ran = run("dead", "show", living)
    assert ran.code == 3
    assert f"windlass tasks show {living}" in ran.err


def test_what_failed_alike_is_listed_and_replayed_together(run: Run, dead: Dead) -> None:
    *alike, other = dead("no customer 1", "no customer 2", "no stock")

    head, line, _ = run("dead", "failures").out.splitlines()
    frequent, rare = run("dead", "failures", "--json").rows
    listed = run("dead", "list", "--json", "--failure", frequent["id"]).rows
    done = run("dead", "replay", "--failure", frequent["id"], "--yes", "--json")

    assert head.split()[:4] == ["failure", "tasks", "type", "error"]
    assert (frequent["id"] in line, "Fatal: no customer 2" in line) == (True, True)
    assert (frequent["number"], rare["number"], rare["task_id"]) == (2, 1, other)
    assert {row["id"] for row in listed} == set(alike)
    assert done.row == {"done": "replayed", "number": 2}
    assert frequent["id"] not in run("dead", "failures", "--limit", "1").out
    assert "no dead letters" in run("dead", "failures", "--type", "nothing").err


def test_one_is_replayed_and_audited(run: Run, dead: Dead) -> None:
    one, other = dead("a", "b")

    ran = run("dead", "replay", one, "--why", "mended", "--json")

    assert ran.row == {"id": one, "done": "replayed"}
    assert states(run) == {one: "ready", other: "dead"}
    entry = run("audit", "--json").row
    assert (entry["action"], entry["why"]) == ("replay", "mended")
    assert "@" in entry["who"]
    again = run("dead", "replay", one)
    assert (again.code, "error[refused]" in again.err) == (3, True)


def test_one_is_replayed_with_an_edited_payload(run: Run, dead: Dead) -> None:
    (task_id,) = dead("a")

    wrong = run("dead", "replay", task_id, "--payload", '{"text": NaN}')
    unfit = run("--app", "shop:app", "dead", "replay", task_id, "--payload", '{"text": 7}')
    many = run("dead", "replay", "--all", "--yes", "--payload", "{}")
    right = run("dead", "replay", task_id, "--payload", '{"text": "better"}')

    assert (wrong.code, unfit.code, many.code, right.code) == (2, 2, 2, 0)
    assert "the payload does not fit shop.explode(text: str = 'boom'): Expected `str`" in unfit.err
    assert run("tasks", "show", task_id, "--json").row["payload"] == {"text": "better"}


@pytest.mark.parametrize("pace", [("--rate", "1/h"), ("--spread", "2h")])
def test_a_replay_is_spread_over_time(run: Run, dead: Dead, pace: tuple[str, str]) -> None:
    first, second = dead("alpha", "beta")

    done = run("dead", "replay", "--all", "--yes", *pace)

    assert done.code == 0
    assert states(run) == {first: "ready", second: "scheduled"}
    due = datetime.fromisoformat(run("tasks", "show", second, "--json").row["run_at"])
    assert timedelta(minutes=50) < due - datetime.now(UTC) <= timedelta(hours=1)
    assert "due at" in run("audit", "--limit", "1").out


def test_a_replay_over_time_into_a_paused_queue_is_refused(run: Run, dead: Dead) -> None:
    made = dead("alpha", "beta")
    run("queues", "pause", "default")

    ran = run("dead", "replay", "--all", "--yes", "--spread", "2h")

    assert ran.code == 3
    assert "queue 'default' is paused" in ran.err
    assert states(run) == dict.fromkeys(made, "dead")


def test_a_pace_is_for_many_and_there_is_one(run: Run, dead: Dead) -> None:
    (task_id,) = dead("alpha")

    for wrong in ((task_id, "--spread", "1m"), ("--all", "--spread", "1m", "--rate", "1/s")):
        assert run("dead", "replay", "--yes", *wrong).code == 2
    assert states(run) == {task_id: "dead"}


def test_replaying_by_filter_asks_for_confirmation(run: Run, dead: Dead) -> None:
    dead("alpha", "beta", "gamma")

    refused = run("dead", "replay", "--error", "a", stdin="no\n")
    done = run("dead", "replay", "--error", "alpha", "--yes")
    rest = run("dead", "replay", "--all", stdin="y\n")
    none = run("dead", "replay", "--all", "--json")

    assert "replay 3 tasks?" in refused.err
    assert "error[refused]" in refused.err
    assert refused.code == 3
    assert (done.out, rest.out) == ("replayed 1 task\n", "replayed 2 tasks\n")
    assert none.row == {"done": "replayed", "number": 0}


@pytest.mark.parametrize("rate", ["0", "0/s", "-1", "fast", "5/d", "nan", "1e9", ""])
def test_an_invalid_rate_is_refused(run: Run, rate: str) -> None:
    assert run("dead", "replay", "--all", "--rate", rate).code == 2


def test_discarding_needs_a_reason(run: Run, dead: Dead) -> None:
    one, other = dead("a", "b")

    without = run("dead", "discard", one)
    blank = run("dead", "discard", "--all", "--yes", "--why", "  ")
    done = run("dead", "discard", one, "--why", "the customer has gone", "--who", "ada")
    rest = run("dead", "discard", "--all", "--why", "likewise", "--json", stdin="y\n")

    assert (without.code, blank.code) == (2, 2)
    assert "--why" in without.err
    assert done.out == f"discarded {one}\n"
    assert rest.out.splitlines()[-1] == json.dumps({"done": "discarded", "number": 1})
    assert states(run) == {}
    entries = run("audit", "--json").rows
    assert [(entry["task_id"], entry["why"]) for entry in entries] == [
        (other, "likewise"),
        (one, "the customer has gone"),
    ]


def test_tasks_that_are_not_dead_are_not_discarded(run: Run, enqueue: Callable[..., str]) -> None:
    task_id = enqueue("shop.explode")

    ran = run("dead", "discard", task_id, "--why", "x")

    assert ran.code == 3
    assert states(run) == {task_id: "ready"}
