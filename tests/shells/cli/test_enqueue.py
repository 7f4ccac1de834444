"""`windlass enqueue`: the id once the task is durable; an invalid call stores nothing."""

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from windlass._client.client import MAX_BATCH

from .conftest import Run
from .processes import Start, until

DEEP = '{"a": ' * 70 + "1" + "}" * 70


@pytest.fixture
def stored(run: Run) -> Callable[[], int]:
    """Count the tasks in the store."""

    def count() -> int:
        return len(run("tasks", "list", "--json").rows)

    return count


def test_it_tells_which_file_it_created(run: Run, folder: Path) -> None:
    first, second = (run("enqueue", "t") for _ in range(2))

    assert first.err.replace("\n", "") == f"created {folder}/windlass.db"
    assert second.err == ""
    assert run("enqueue", "t", "--store", "sqlite:///b.db", "--json").err == ""


def test_it_prints_the_id_of_the_stored_task(run: Run) -> None:
    ran = run("enqueue", "shop.welcome", '{"user_id": 1}')

    assert ran.code == 0
    task = run("tasks", "show", ran.out.strip(), "--json").row
    assert (task["type"], task["payload"], task["state"]) == ("shop.welcome", {"user_id": 1}, "ready")


def test_a_payload_may_be_left_out(run: Run) -> None:
    ran = run("enqueue", "t", "--json")

    assert ran.row["created"] is True
    assert run("tasks", "show", ran.row["id"], "--json").row["payload"] == {}


def test_every_option_is_stored(run: Run) -> None:
    ran = run(
        *("enqueue", "t", "{}", "-q", "mail", "--tenant", "acme", "--priority", "high", "--delay", "1h"),
        *("--max-attempts", "2", "--timeout", "90", "--key", "k", "--key-for", "1d", "--unique"),
    )

    task = run("tasks", "show", ran.out.strip(), "--json").row
    assert task["queue"] == "mail"
    assert task["tenant"] == "acme"
    assert task["priority"] == 10
    assert task["state"] == "scheduled"
    assert task["max_attempts"] == 2
    assert task["timeout"] == 90.0
    assert task["idempotency_key"] == "k"
    assert task["enqueued_by"]


def test_an_instant_with_a_zone_is_kept_in_utc(run: Run) -> None:
    ran = run("enqueue", "t", "--run-at", "2030-01-01T01:00+01:00")

    assert run("tasks", "show", ran.out.strip(), "--json").row["run_at"] == "2030-01-01T00:00:00Z"


def test_a_task_waits_for_others(run: Run, stored: Callable[[], int]) -> None:
    one, two = (run("enqueue", "t").out.strip() for _ in range(2))
    last = run("enqueue", "u", "--after", one, "--after", two, "--result-into", "results").out.strip()
    unknown = run("enqueue", "u", "--after", "0198c0de-0000-7000-8000-00000000abcd")

    task = run("tasks", "show", last, "--json").row
    assert (task["state"], task["after"], task["result_into"]) == ("waiting", [one, two], "results")
    assert two in run("tasks", "show", last).out
    assert "there is no task" in unknown.err
    assert stored() == 3


def test_now_is_an_instant(run: Run) -> None:
    ran = run("enqueue", "t", "--run-at", "now")

    assert run("tasks", "show", ran.out.strip(), "--json").row["state"] == "ready"


def test_a_run_at_out_of_bounds_is_refused(run: Run, stored: Callable[[], int]) -> None:
    ran = run("enqueue", "t", "--run-at", "9999-12-31T23:59:59.999999Z")

    assert "run_at must be from 1970 to ten years from now" in ran.err
    assert stored() == 0


def test_an_app_gives_the_defaults_and_checks_the_payload(run: Run, stored: Callable[[], int]) -> None:
    good = run("enqueue", "--app", "shop:app", "shop.welcome", '{"user_id": 1}', "--json")
    wrong = run("enqueue", "--app", "shop:app", "shop.welcome", '{"user_id": "one"}')
    unknown = run("enqueue", "--app", "shop:app", "shop.welcom", "{}")
    foreign = run("enqueue", "--app", "shop:app", "shop.welcom", "{}", "--undeclared")

    task = run("tasks", "show", good.row["id"], "--json").row
    assert (task["queue"], task["max_attempts"], task["secret"]) == ("mail", 3, ["card"])
    assert (wrong.code, unknown.code, foreign.code) == (2, 2, 0)
    assert "error[invalid-payload]" in wrong.err
    assert "error[unknown-task-type]" in unknown.err
    assert stored() == 2


def test_a_misspelt_secret_field_is_refused(run: Run, stored: Callable[[], int]) -> None:
    app = ("--app", "shop:app")
    enqueued = run("enqueue", *app, "shop.explode", '{"text": "a"}', "--secret", "txet")
    scheduled = run("schedules", "add", *app, "s", "shop.explode", "1h", '{"text": "a"}', "--secret", "txet")

    assert [ran.code for ran in (enqueued, scheduled)] == [2, 2]
    assert all("did you mean 'text'?" in ran.err for ran in (enqueued, scheduled))
    assert run("enqueue", *app, "shop.explode", '{"text": "a"}', "--secret", "text").code == 0
    assert stored() == 1


def test_a_repeated_key_returns_the_first_task(run: Run) -> None:
    first = run("enqueue", "t", "--key", "k", "--json").row
    again = run("enqueue", "t", "--key", "k", "--json").row
    other = run("enqueue", "u", "--key", "k")

    assert (again["id"], again["created"]) == (first["id"], False)
    assert other.code == 3
    assert "error[idempotency-conflict]" in other.err


def test_a_duplicate_is_refused_and_names_the_existing_task(run: Run) -> None:
    first = run("enqueue", "t", "--unique").out.strip()
    second = run("enqueue", "t", "--unique", "--json")

    assert second.code == 3
    error = json.loads(second.err)["error"]
    assert error["code"] == "duplicate-task"
    assert first in error["message"]


def test_unique_by_a_field_and_for_a_period(run: Run) -> None:
    options = ("--unique-by", "n", "--unique-for", "1h")
    first = run("enqueue", "t", '{"n": 1, "note": "a"}', *options).out.strip()
    run("tasks", "cancel", first, "--yes")
    second = run("enqueue", "t", '{"n": 1, "note": "b"}', *options, "--json")

    assert second.code == 3
    error = json.loads(second.err)["error"]
    assert (error["code"], first in error["message"]) == ("duplicate-task", True)
    assert run("enqueue", "t", '{"n": 2}', *options).code == 0
    assert "does not have" in run("enqueue", "t", '{"n": 2}', "--unique-by", "m").err
    assert "excludes" in run("enqueue", "t", '{"n": 2}', "--unique-by", "n", "--unique").err


def test_a_key_that_only_windlass_makes_is_refused(run: Run) -> None:
    assert "not printable" in run("enqueue", "t", "--key", "\x1fschedule:s:2026-01-01T00:00:00+00:00").err


def test_lines_of_stdin_become_tasks_all_or_none(run: Run, stored: Callable[[], int]) -> None:
    good = run("enqueue", "t", "--stdin", "-q", "mail", stdin='{"n": 1}\n\n{"n": 2}\n{"n": 3}')
    bad = run("enqueue", "t", "--stdin", stdin='{"n": 1}\n{"n": NaN}\n')
    none = run("enqueue", "t", "--stdin", stdin="")

    assert len(good.out.split()) == 3
    assert bad.code == 2
    assert "line 2: the payload contains NaN" in bad.err
    assert (none.code, none.out) == (0, "")
    assert stored() == 3


def test_more_lines_than_a_call_may_have_are_refused_together(run: Run, stored: Callable[[], int]) -> None:
    ran = run("enqueue", "t", "--stdin", stdin="{}\n" * (MAX_BATCH + 1))

    assert ran.code == 2
    assert "--stdin takes at most 100,000 lines; split the input" in ran.err
    assert stored() == 0


@pytest.mark.parametrize("options", [("{}",), ("--key", "k"), ("--wait",)])
def test_stdin_excludes_options_for_a_single_task(run: Run, options: tuple[str, ...]) -> None:
    ran = run("enqueue", "t", "--stdin", *options, stdin="{}")

    assert ran.code == 2
    assert "--stdin" in ran.err


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ('{"a": "\\u0000"}', "NUL"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "Infinity"),
        ('{"a": 1e999}', "inf"),
        ('{"a": "\\ud800"}', "surrogate"),
        ('{"\\ud800": 1}', "surrogate"),
        ('{"a": 9223372036854775808}', "64 bits"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        (DEEP, "deeper"),
        ('{"a": "' + "x" * (1 << 20) + '"}', "bytes"),
        ("[1]", "mapping"),
        ("3", "mapping"),
        ("{", "not JSON"),
        ("{'a': 1}", "not JSON"),
        ('{"a": 1, "a": 2}', "twice"),
        ("\udcff", "UTF-8"),
    ],
)
def test_an_invalid_payload_is_refused(
    run: Run, stored: Callable[[], int], payload: str, complaint: str
) -> None:
    run("migrate")
    ran = run("enqueue", "t", payload)

    assert ran.code == 2
    assert ran.err.startswith("error[")
    assert ran.err.count("\n") == 1
    assert complaint in ran.err
    assert stored() == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--run-at", "2026-01-01T00:00:00"), "has no time zone"),
        (("--run-at", "2026-01-01"), "has no time zone"),
        (("--run-at", "tomorrow"), "not an instant"),
        (("--run-at", "0001-01-01T00:00+14:00"), "outside the years"),
        (("--delay", "-5"), "duration"),
        (("--delay", "soon"), "duration"),
        (("--delay", "nan"), "duration"),
        (("--delay", "11000d"), "duration"),
        (("--delay", "5m", "--run-at", "2026-01-01T00:00Z"), "exclude"),
        (("--priority", "urgent"), "priority"),
        (("--priority", "101"), "priority"),
        (("--queue", "a b"), "not a valid name"),
        (("--queue", ""), "not a valid name"),
        (("--queue", "x" * 129), "not a valid name"),
        (("--queue", "\x1b[31m"), "not a valid name"),
        (("--tenant", "\n"), "not a valid name"),
        (("--max-attempts", "0"), "max_attempts"),
        (("--max-attempts", "x"), "integer"),
        (("--timeout", "0"), "timeout"),
        (("--key", ""), "idempotency key"),
        (("--key", "k" * 256), "idempotency key"),
        (("--key-for", "1d"), "idempotency_key"),
        (("--trace", "x"), "traceparent"),
        (("--colour", "red"), "No such option"),
        (("{}", "{}"), "unexpected extra argument"),
    ],
)
def test_an_invalid_option_is_refused(
    run: Run, stored: Callable[[], int], options: tuple[str, ...], complaint: str
) -> None:
    run("migrate")
    ran = run("enqueue", "t", *options)

    assert ran.code == 2
    assert ran.err.startswith("error[")
    assert "\x1b" not in ran.err
    assert complaint in ran.err
    assert stored() == 0


@pytest.mark.parametrize("type_name", ["", "a b", "\x1b[31m", "x" * 200])
def test_a_type_must_be_a_name(run: Run, stored: Callable[[], int], type_name: str) -> None:
    run("migrate")
    ran = run("enqueue", type_name)

    assert ran.code == 2
    assert "task type" in ran.err
    assert stored() == 0


@pytest.mark.system
def test_wait_prints_the_result_with_its_secrets_masked(run: Run, start: Start) -> None:
    worker = start("worker", "shop:app")
    plain = run("enqueue", "--app", "shop:app", "shop.welcome", '{"user_id": 1}', "--wait")
    revealed = run("enqueue", "--app", "shop:app", "shop.welcome", '{"user_id": 2}', "--wait", "--reveal")
    as_json = run("enqueue", "--app", "shop:app", "shop.welcome", '{"user_id": 3}', "--wait", "--json")
    died = run("enqueue", "--app", "shop:app", "shop.explode", "--wait")
    died_json = run("enqueue", "--app", "shop:app", "shop.explode", "--wait", "--json")

    assert (plain.code, json.loads(plain.out)) == (0, {"user": 1, "token": "[secret]"})
    assert json.loads(revealed.out) == {"user": 2, "token": "t0ps3cret"}
    assert [line["action"] for line in run("audit", "--json").rows] == ["reveal"]
    assert (as_json.row["state"], as_json.row["result"]) == ("completed", {"user": 3, "token": "[secret]"})
    assert (died.code, died.out) == (1, "")
    assert "error[task-dead]" in died.err
    assert (died_json.code, died_json.row["state"]) == (1, "dead")
    assert worker.poll() is None


def test_wait_ends_at_its_limit(run: Run) -> None:
    ran = run("enqueue", "t", "--wait-at-most", "50ms")

    assert ran.code == 1
    assert "error[not-finished]" in ran.err


@pytest.mark.system
def test_a_wait_for_a_task_that_no_worker_serves_is_explained(
    start: Start, stored: Callable[[], int], work: Callable[[], None]
) -> None:
    in_json = start("enqueue", "shop.welcome", '{"user_id": 1}', "--wait", "--json")
    waiting = start("enqueue", "shop.welcome", '{"user_id": 2}', "--wait")
    until(waiting, "no live worker serves queue default (store sqlite:///")
    while stored() < 2:  # pytest's own time limit ends it
        pass
    work()
    out, err = waiting.communicate(timeout=50)

    assert (waiting.returncode, json.loads(out)["user"], err) == (0, 2, "")
    out, err = in_json.communicate(timeout=50)
    assert (in_json.returncode, json.loads(out)["result"]["user"], err) == (0, 1, "")


@pytest.mark.system
def test_a_wait_for_a_task_that_no_worker_can_run_is_explained(start: Start) -> None:
    worker = start("worker", "shop:app")
    until(worker, "is ready")
    waiting = start("enqueue", "nobody.has_this", "--wait")
    until(waiting, "no live worker has a handler for nobody.has_this")


@pytest.mark.system
def test_an_interrupted_wait_exits_with_130(run: Run, start: Start) -> None:
    waiting = start("enqueue", "t", "--wait")
    until(waiting, "enqueued ")

    waiting.send_signal(signal.SIGINT)
    out, err = waiting.communicate(timeout=20)

    assert waiting.returncode == 130
    assert out == ""
    assert "error" not in err
    assert len(run("tasks", "list", "--json").rows) == 1


def test_a_store_inside_this_process_is_refused(run: Run, folder: Path) -> None:
    ran = run("enqueue", "t", "--store", "memory://")

    assert ran.code == 2
    assert "memory://" in ran.err


def test_a_type_that_an_app_has_published_has_its_defaults_without_the_app(
    run: Run, work: Callable[[], None]
) -> None:
    work()
    made = run("enqueue", "shop.welcome", '{"user_id": 1}', "--json").row

    shown = run("tasks", "show", made["id"], "--json").row

    assert (shown["queue"], shown["max_attempts"]) == ("mail", 3)


def test_an_expiry_is_a_duration_or_an_instant(run: Run) -> None:
    for given in ("1h", "2035-01-01T00:00:00Z"):
        ran = run("enqueue", "t", "--expires", given)
        shown = run("tasks", "show", ran.out.strip())
        assert "expires" in shown.out
    (instant, duration) = [row["expires_at"] for row in run("tasks", "list", "--json").rows]
    assert instant == "2035-01-01T00:00:00Z"
    assert duration < instant

    refused = run("enqueue", "t", "--expires", "soon")
    assert refused.code == 2
    assert "soon" in refused.err


def test_tasks_are_listed_by_their_expiry(run: Run) -> None:
    soon = run("enqueue", "t", "--expires", "1h").out.strip()
    run("enqueue", "t", "--expires", "2035-01-01T00:00:00Z")
    run("enqueue", "t")

    rows = run("tasks", "list", "--json", "--expires-before", "2034-01-01T00:00:00Z").rows

    assert [row["id"] for row in rows] == [soon]


def test_fields_are_marked_as_secret(run: Run) -> None:
    task_id = run(
        "enqueue", "t", '{"x": "s3cr3t", "y": {"z": "h1dden"}}', "--secret", "x", "--secret", "y.z"
    ).out.strip()
    run("schedules", "add", "hourly", "t", "1h", '{"x": "s3cr3t"}', "--secret", "x")

    shown = run("tasks", "show", task_id, "--json")
    assert shown.row["payload"] == {"x": "[secret]", "y": {"z": "[secret]"}}
    assert run("schedules", "show", "hourly", "--json").row["payload"] == {"x": "[secret]"}
    assert run("enqueue", "t", "--secret", "re:x").code == 2
