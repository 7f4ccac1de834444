"""`windlass export`: JSON lines of ended tasks, to stdout or a file, continued where it stopped."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from windlass._client.tasks import export

from .conftest import Run


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Export up to the present: the tests do not wait."""
    monkeypatch.setattr(export, "SETTLING", timedelta(0))
    return


def cancelled(run: Run, number: int, *, secret: bool = False) -> list[str]:
    payload = '{"password":"hunter2"}\n' if secret else "{}\n"
    ids = run("enqueue", "t", "--stdin", stdin=payload * number).out.split()
    run("tasks", "cancel", *ids, "--who", "ann")
    return ids


def ids_of(text: str) -> list[str]:
    return [json.loads(line)["id"] for line in text.splitlines()]


def test_ended_tasks_go_to_stdout_and_the_rest_to_stderr(run: Run) -> None:
    ids = cancelled(run, 3)
    run("enqueue", "t")

    ran = run("export")

    assert ids_of(ran.out) == ids
    assert [json.loads(line)["attempts"] for line in ran.out.splitlines()] == [[], [], []]
    assert "exported 3 tasks; cursor " in ran.err


def test_secrets_are_masked_unless_revealed(run: Run) -> None:
    cancelled(run, 1, secret=True)

    assert "hunter2" not in run("export").out
    assert "hunter2" in run("export", "--reveal").out


def test_filters_are_those_of_ended_tasks(run: Run) -> None:
    cancelled(run, 2)

    assert ids_of(run("export", "--state", "dead").out) == []
    assert len(ids_of(run("export", "--state", "cancelled", "--since", "1h").out)) == 2
    assert ids_of(run("export", "--until", "1h").out) == []
    assert run("export", "--state", "ready").code == 2


def test_a_cursor_continues_an_export(run: Run) -> None:
    first = cancelled(run, 2)
    cursor = run("export").err.rpartition("cursor ")[2].strip()
    more = cancelled(run, 2)

    assert ids_of(run("export").out) == [*first, *more]
    assert ids_of(run("export", "--after", cursor).out) == more
    wrong = run("export", "--after", "yesterday")
    assert (wrong.code, wrong.out) == (2, "")
    assert "not a cursor" in wrong.err


def test_an_interrupted_file_is_continued_without_loss_or_repetition(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "history.ndjson"
    ids = cancelled(run, 5)
    assert run("export", "--output", str(file)).code == 0
    whole = file.read_bytes()
    ends = [n + 1 for n, byte in enumerate(whole) if byte == 0x0A]

    for cut in {0, 1, ends[0], ends[1] - 1, ends[2] + 7, ends[3], len(whole) - 1, len(whole)}:
        file.write_bytes(whole[:cut])
        ran = run("export", "-o", str(file), "--resume")
        assert ran.code == 0, ran.err
        assert file.read_bytes() == whole

    more = cancelled(run, 1)
    run("export", "-o", str(file), "--resume")
    assert ids_of(file.read_text()) == [*ids, *more]


def test_a_file_that_is_there_is_not_overwritten(run: Run, tmp_path: Path) -> None:
    cancelled(run, 1)
    file = tmp_path / "notes.txt"
    file.write_text("keep me\n")

    refused, other = run("export", "-o", str(file)), run("export", "-o", str(file), "--resume")

    assert (refused.code, other.code) == (2, 2)
    assert "--resume continues it" in refused.err
    assert "not a task that was exported" in other.err
    assert file.read_text() == "keep me\n"


def test_resume_needs_a_file(run: Run) -> None:
    cancelled(run, 1)

    assert run("export", "--resume").code == 2
