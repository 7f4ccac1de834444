"""`windlass tasks`: list, show, attempts, cancel."""

import json
from collections.abc import Callable

import pytest

from .conftest import Run

NOBODY = "0198c0de-0000-7000-8000-00000000abcd"

Enqueue = Callable[..., str]


def test_the_newest_comes_first_in_table_and_json(run: Run, enqueue: Enqueue) -> None:
    first, second = enqueue("shop.welcome", '{"user_id": 1}'), enqueue("shop.explode")

    table = run("tasks", "list")
    rows = run("tasks", "list", "--json").rows
    oldest = run("tasks", "list", "--json", "--oldest").rows

    head, one, two = table.out.splitlines()
    assert head.split()[:5] == ["id", "state", "type", "attempt", "when"]
    assert one.split()[:4] == [second, "ready", "shop.explode", "0/8"]
    assert two.split()[:4] == [first, "ready", "shop.welcome", "0/3"]
    assert [row["id"] for row in rows] == [second, first]
    assert [row["id"] for row in oldest] == [first, second]


def test_json_has_the_fields_of_the_api(run: Run, enqueue: Enqueue, work: Callable[[], None]) -> None:
    enqueue("shop.welcome", '{"user_id": 1, "card": "4111"}')
    work()

    row = run("tasks", "list", "--json").row

    assert row["state"] == "completed"
    assert row["payload"] == {"user_id": 1, "card": "[secret]"}
    assert row["result"] == {"user": 1, "token": "[secret]"}
    assert row["created_at"].endswith("Z")
    assert isinstance(row["duration"], float)
    assert row["attempt"] == 1
    assert row["next"] == row["after"] == []


def test_secrets_are_shown_only_with_reveal(run: Run, enqueue: Enqueue, work: Callable[[], None]) -> None:
    task_id = enqueue("shop.welcome", '{"user_id": 1, "card": "4111"}')
    work()

    for command in (("list", "--json"), ("show", task_id), ("show", task_id, "--json")):
        hidden, shown = run("tasks", *command), run("tasks", *command, "--reveal")
        assert "4111" not in hidden.out
        assert "t0ps3cret" not in hidden.out
        assert "4111" in shown.out
        assert "t0ps3cret" in shown.out


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ((), ["a", "b", "c"]),
        (("--state", "scheduled"), ["c"]),
        (("--state", "scheduled", "--state", "ready"), ["a", "b", "c"]),
        (("--type", "a", "--type", "b"), ["a", "b"]),
        (("--queue", "mail"), ["b"]),
        (("-q", "nowhere"), []),
        (("--tenant", "acme"), ["c"]),
        (("--key", "k"), ["a"]),
        (("--error", "boom"), []),
        (("--since", "1h"), ["a", "b", "c"]),
        (("--until", "1h"), []),
        (("--since", "2099-01-01T00:00Z"), []),
        (("--root", NOBODY), []),
        (("--limit", "1"), ["c"]),
    ],
)
def test_filters_narrow_the_list(run: Run, options: tuple[str, ...], found: list[str]) -> None:
    run("enqueue", "a", "--key", "k")
    run("enqueue", "b", "--queue", "mail")
    run("enqueue", "c", "--tenant", "acme", "--delay", "1h")

    ran = run("tasks", "list", "--json", *options)

    assert sorted(row["type"] for row in ran.rows) == found


def test_pages_follow_each_other(run: Run) -> None:
    ids = run("enqueue", "t", "--stdin", stdin="{}\n" * 5).out.split()
    seen: list[str] = []
    cursor: tuple[str, ...] = ()
    for _ in range(3):
        page = [row["id"] for row in run("tasks", "list", "--json", "--limit", "2", *cursor).rows]
        seen += page
        cursor = ("--cursor", page[-1])

    assert seen == ids[::-1]
    assert f"--cursor {ids[3]}" in run("tasks", "list", "--limit", "2").err
    assert "--cursor" not in run("tasks", "list", "--limit", "5").err


def test_a_limit_above_the_page_size_of_the_store_reads_several_pages(run: Run) -> None:
    run("enqueue", "t", "--stdin", stdin="{}\n" * 1100)

    assert len(run("tasks", "list", "--json", "--limit", "1050").rows) == 1050
    assert len(run("tasks", "list", "--json", "--limit", "10000").rows) == 1100


@pytest.mark.parametrize("limit", ["0", "-1", "10001", "9" * 40, "x"])
def test_a_limit_out_of_range_is_refused(run: Run, limit: str) -> None:
    assert run("tasks", "list", "--limit", limit).code == 2


def test_an_empty_list_is_not_an_error(run: Run) -> None:
    run("migrate")

    assert run("tasks", "list").out == ""
    assert run("tasks", "list").err == "no tasks match\n"
    assert run("tasks", "list", "--json").out == ""


def test_one_task_is_shown_with_its_attempts(run: Run, dead: Callable[..., list[str]]) -> None:
    (task_id,) = dead("boom")

    text = run("tasks", "show", task_id).out
    row = run("tasks", "show", task_id, "--json").row
    attempts = run("tasks", "attempts", task_id)

    assert "windlass.signals.Fatal: boom" in text
    assert "traceback" in text
    assert row["error"]["message"] == "boom"
    assert [attempt["number"] for attempt in row["attempts"]] == [1]
    assert attempts.out.splitlines()[1].split()[0] == "1"
    assert run("tasks", "attempts", task_id, "--json").rows == row["attempts"]


def test_a_chain_is_shown_with_the_secrets_of_its_steps_masked(run: Run, folder: object) -> None:
    from windlass import App

    app = App("sqlite:///windlass.db", secret=("card",))

    @app.task(name="first")
    def first() -> None: ...
    @app.task(name="second")
    def second(card: str) -> None: ...

    handle = app.sync_client.enqueue(first.step().then(second.step(card="4111")))

    row = run("tasks", "show", handle.id, "--json").row
    assert [(step["type"], step["payload"]) for step in row["next"]] == [("second", {"card": "[secret]"})]
    text = run("tasks", "show", handle.id).out
    assert "second" in text
    assert "4111" not in text


@pytest.mark.parametrize("command", ["show", "attempts", "cancel"])
def test_an_unknown_task_is_not_found(run: Run, command: str) -> None:
    run("migrate")
    ran = run("tasks", command, NOBODY)
    as_json = run("tasks", command, NOBODY, "--json")

    assert ran.code == 3
    assert ran.err.startswith("error[not-found]: there is no task")
    assert as_json.code == 3
    assert json.loads(as_json.err)["error"]["code"] == "not-found"
    assert as_json.out == ""


@pytest.mark.parametrize("wrong", ["", "x", "1", "../../etc/passwd", "\x1b[2J", NOBODY + "0", "0" * 36, "%s"])
def test_an_invalid_id_is_refused_before_the_store_is_opened(run: Run, wrong: str) -> None:
    for command in ("show", "attempts", "cancel"):
        ran = run("tasks", command, "--", wrong)
        assert ran.code == 2
        assert "is not a task id" in ran.err
        assert "\x1b" not in ran.err


def test_cancelling_is_audited_and_cannot_be_done_twice(run: Run, enqueue: Enqueue) -> None:
    task_id = enqueue("shop.welcome", '{"user_id": 1}')

    ran = run("tasks", "cancel", task_id, "--why", "a mistake", "--who", "ada")
    again = run("tasks", "cancel", task_id)

    assert (ran.code, ran.out) == (0, f"cancelled {task_id}\n")
    assert run("tasks", "show", task_id, "--json").row["state"] == "cancelled"
    entry = run("audit", "--json").row
    assert (entry["who"], entry["why"], entry["task_id"]) == ("ada", "a mistake", task_id)
    assert again.code == 3
    assert "error[task-finished]" in again.err


def test_of_several_ids_each_is_reported(run: Run, enqueue: Enqueue) -> None:
    good = enqueue("shop.welcome", '{"user_id": 1}')

    ran = run("tasks", "cancel", NOBODY, good, "--json")

    assert ran.code == 3
    assert ran.row == {"id": good, "done": "cancelled"}
    assert json.loads(ran.err)["error"]["code"] == "not-found"


def test_cancelling_by_filter_asks_for_confirmation(run: Run, enqueue: Enqueue) -> None:
    enqueue("shop.welcome", '{"user_id": 1}')
    enqueue("shop.welcome", '{"user_id": 2}')
    enqueue("shop.explode")

    unsure = run("tasks", "cancel", "--type", "shop.welcome")
    no = run("tasks", "cancel", "--type", "shop.welcome", stdin="n\n")
    yes = run("tasks", "cancel", "--type", "shop.welcome", stdin="y\n")
    rest = run("tasks", "cancel", "--all", "--yes", "--json")

    assert "cancel 2 tasks?" in unsure.err
    assert (unsure.code, no.code) == (3, 3)
    assert "not confirmed; 2 tasks left unchanged" in no.err
    assert (yes.code, yes.out) == (0, "cancelled 2 tasks\n")
    assert rest.row == {"done": "cancelled", "number": 1}


@pytest.mark.parametrize("options", [(), (NOBODY, "--all"), (NOBODY, "--type", "t")])
def test_ids_and_filters_exclude_each_other_and_one_is_required(run: Run, options: tuple[str, ...]) -> None:
    run("migrate")

    assert run("tasks", "cancel", *options).code == 2


def test_who_cancelled_a_task_and_why_is_shown(run: Run, enqueue: Enqueue) -> None:
    task_id = enqueue("shop.explode")
    run("tasks", "cancel", task_id, "--who", "ada", "--why", "wrong list")

    shown = run("tasks", "show", task_id).out
    row = run("tasks", "show", task_id, "--json").row

    assert "cancelled by  ada: wrong list" in shown
    assert "cancelling" not in shown
    assert (row["cancelled_by"], row["cancel_reason"]) == ("ada", "wrong list")
    assert row["error"]["message"] == "cancelled by ada: wrong list"


def test_the_notes_of_an_attempt_are_shown(run: Run, enqueue: Enqueue, work: Callable[[], None]) -> None:
    task_id = enqueue("shop.noting")
    work()

    shown = run("tasks", "attempts", task_id).out
    rows = run("tasks", "attempts", task_id, "--json").rows

    assert 'response_code=503 host="api"' in shown
    assert [row["notes"] for row in rows] == [{"response_code": 503, "host": "api"}]
