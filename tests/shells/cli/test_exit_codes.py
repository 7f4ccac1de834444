"""Exit codes, and the one line on stderr that explains them."""

import json
import sqlite3
from pathlib import Path

import pytest

from .conftest import Run


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("taks",), "did you mean 'tasks'?"),
        (("tasks", "lst"), "did you mean 'list'?"),
        (("tasks", "lst"), "windlass tasks --help"),
        (("tasks", "list", "--stat", "x"), "windlass tasks list --help"),
        (("tasks", "list", "--state", "lost"), "windlass tasks list --help"),
        (("tasks", "show"), "windlass tasks show --help"),
    ],
)
def test_a_wrong_command_is_one_line_with_a_hint(run: Run, command: tuple[str, ...], hint: str) -> None:
    ran = run(*command)
    as_json = run(*command, "--json")

    assert ran.code == as_json.code == 2
    assert ran.err.startswith("error[usage]: ")
    assert ran.err.count("\n") == 1
    assert hint in ran.err
    assert json.loads(as_json.err)["error"]["code"] == "usage"


class TestUnusableStore:
    """Each kind of error has one line that says what to do, and its exit code."""

    def test_a_folder_that_is_missing(self, run: Run, folder: Path) -> None:
        for command in (("tasks", "list"), ("enqueue", "t"), ("check",), ("migrate",)):
            ran = run("--store", f"sqlite:///{folder}/missing/windlass.db", *command)
            assert ran.code == 4
            assert "does not exist" in ran.err

    def test_a_folder_instead_of_a_file(self, run: Run, folder: Path) -> None:
        assert run("--store", f"sqlite:///{folder}", "tasks", "list").code == 4

    def test_a_file_that_is_no_database(self, run: Run, folder: Path) -> None:
        ran = run("--store", f"sqlite:///{folder}/shop.py", "--json", "tasks", "list")

        assert ran.code == 4
        assert "not a SQLite database" in json.loads(ran.err)["error"]["message"]

    def test_a_schema_from_the_future(self, run: Run, folder: Path) -> None:
        run("enqueue", "t")
        with sqlite3.connect("windlass.db") as connection:
            connection.execute("UPDATE windlass_schema SET number = 99")
        connection.close()

        for command in (("tasks", "list"), ("enqueue", "t"), ("dead", "replay", "--all"), ("migrate",)):
            ran = run(*command)
            assert ran.code == 5
            assert ran.err.startswith("error[schema-mismatch]: ")
            assert "upgrade windlass" in ran.err

    def test_reading_does_not_create_a_store(self, run: Run, folder: Path) -> None:
        for command in (("tasks", "list"), ("queues", "list"), ("dead", "replay", "--all"), ("check",)):
            ran = run(*command)
            assert ran.code == 3
            assert f"there is no store at sqlite:///{folder}/windlass.db yet" in ran.err

    @pytest.mark.parametrize(
        "url", ["nonsense", "oracle://x", "sqlite://x.db", "sqlite:///:memory:", "memory://"]
    )
    def test_an_invalid_url(self, run: Run, url: str) -> None:
        assert run("--store", url, "tasks", "list").code == 2

    def test_a_password_is_not_printed(self, run: Run) -> None:
        assert "hunter2" not in run("--store", "postgres://ada:hunter2@host/db", "tasks", "list").err
