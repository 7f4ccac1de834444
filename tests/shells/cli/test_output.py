"""Output of every command: tables that fit the terminal, colours, escaped text, pipes and encodings."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from rich.cells import cell_len

from windlass._cli.output import Column, table_rows
from windlass._cli.task_ids import ID_PREFIX

from .conftest import Run

Start = Callable[..., subprocess.Popen[str]]


def in_terminal(start: Start, *arguments: str, columns: int = 80, **env: str) -> str:
    """Run a command in a pseudo-terminal of this width and return what it shows."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}}
    process = start(*arguments, stdout=theirs, stderr=theirs, env={**clean, "TERM": "xterm-256color", **env})
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65536):
            shown += part
    except OSError:  # the other side has closed
        pass
    os.close(ours)
    process.wait(30)
    return shown.decode().replace("\r\n", "\n")


@pytest.mark.system
def test_a_table_fits_the_terminal_and_keeps_ids_whole(start: Start, dead: Callable[..., list[str]]) -> None:
    ids = dead("a long story about what went wrong " * 5, "日本語のエラー" * 10)

    plain = in_terminal(start, "tasks", "list", TERM="dumb")
    letters = in_terminal(start, "dead", "list", TERM="dumb")
    wide = in_terminal(start, "tasks", "list", columns=200)

    for text in (plain, letters):
        assert all(cell_len(row) <= 80 for row in text.splitlines())
        assert all(task_id in text for task_id in ids)
        assert len(text.splitlines()) == 3
        assert "\x1b" not in text
    assert "error" not in plain
    assert "error" in wide


@dataclass
class _Row:
    id: str
    error: str


def _columns() -> list[Column[_Row]]:
    return [
        Column("id", lambda row: row.id, prefix=ID_PREFIX),
        Column("state", lambda _: "completed"),
        Column("error", lambda row: row.error, elastic=True),
    ]


@pytest.mark.parametrize(("width", "whole"), [(80, True), (60, True), (50, False), (44, False)])
def test_an_id_is_cut_to_a_prefix_rather_than_a_column_dropped(width: int, whole: bool) -> None:
    row = _Row(id="0198c0de-0000-7000-8000-00000000abcd", error="the bank did not answer " * 4)

    head, cells = table_rows([row], _columns(), width)

    assert [title.strip() for title, _ in head] == ["id", "state", "error"]
    assert cells[0][0] == (row.id if whole else row.id[:ID_PREFIX])
    assert sum(cell_len(text) for text, _ in cells) + 4 <= width


@pytest.mark.system
def test_a_narrow_table_of_dead_letters_shows_errors_and_ids_that_commands_take(
    run: Run, start: Start, dead: Callable[..., list[str]]
) -> None:
    (whole,) = dead("the bank did not answer")

    shown = in_terminal(start, "dead", "list", columns=56)
    head, row = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    prefix = row.split()[0]

    assert head.split() == ["id", "died", "type", "error"]
    assert whole.startswith(prefix)
    assert len(prefix) < len(whole)
    assert run("dead", "show", prefix, "--json").row["id"] == whole


@pytest.mark.system
@pytest.mark.parametrize(
    "command", [("tasks", "list"), ("dead", "list"), ("queues", "list"), ("dead", "failures")]
)
def test_a_table_fits_50_columns(
    start: Start, dead: Callable[..., list[str]], command: tuple[str, str]
) -> None:
    dead("a long story about what went wrong " * 5)

    shown = in_terminal(start, *command, columns=50)
    head, *rows = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()

    assert rows
    assert max(map(cell_len, [head, *rows])) <= 50
    assert len(head.split()) > 1


@pytest.mark.system
def test_only_terminals_get_colours(start: Start, run: Run, dead: Callable[..., list[str]]) -> None:
    dead("boom")

    assert "\x1b[1;31mdead" in in_terminal(start, "tasks", "list")
    assert "\x1b" not in run("tasks", "list").out
    assert "31m" not in in_terminal(start, "tasks", "list", NO_COLOR="1")
    assert "\x1b[1;31merror[not-found]:" in in_terminal(start, "--store", "sqlite:///no.db", "tasks", "list")


NASTY = "\x1b[2J\x1b]0;pwned\x07\x9b31m\x7f\u202egnp\u2028\r\n\tend"


@pytest.mark.parametrize("options", [(), ("--reveal",)])
def test_control_characters_of_stored_values_are_escaped(
    run: Run, dead: Callable[..., list[str]], options: tuple[str, ...]
) -> None:
    (task_id,) = dead(NASTY)
    run(
        "tasks",
        "cancel",
        run("enqueue", "t", json.dumps({NASTY: NASTY})).out.strip(),
        "--why",
        NASTY,
        "--who",
        NASTY,
    )

    for command in (
        ("tasks", "list", *options),
        ("tasks", "show", task_id, *options),
        ("tasks", "attempts", task_id),
        ("dead", "list", *options),
        ("dead", "show", task_id, *options),
        ("audit",),
        ("queues", "list"),
    ):
        for form in ((), ("--json",)):
            out = run(*command, *form).out
            assert all(char.isprintable() or char == "\n" for char in out), (command, form)
    assert run("dead", "show", task_id, "--json").row["payload"] == {"text": NASTY}


@pytest.mark.system
def test_a_reader_that_closes_the_pipe_is_no_error(run: Run, start: Start) -> None:
    run("enqueue", "t", "--stdin", stdin=json.dumps({"a": "x" * 500}) + "\n" + "{}\n" * 2000)
    for form in ((), ("--json",)):
        listing = start("tasks", "list", "--limit", "2001", *form)
        assert listing.stdout is not None
        listing.stdout.readline()
        listing.stdout.close()
        listing.stdout = None

        _, err = listing.communicate(timeout=30)

        assert (listing.returncode, err) == (0, "")


@pytest.mark.system
def test_output_to_an_ascii_stream_is_escaped(start: Start, dead: Callable[..., list[str]]) -> None:
    dead("日本語")
    env = {"PYTHONIOENCODING": "ascii", "PATH": os.environ["PATH"]}

    table, _ = start("dead", "list", env=env).communicate(timeout=30)
    lines_of_json, _ = start("dead", "list", "--json", env=env).communicate(timeout=30)

    assert "Fatal: \\u65e5" in table
    assert json.loads(lines_of_json)["error"]["message"] == "日本語"
