"""How commands end and what they print: quiet pipes, no injected escapes, tables that fit, a quick start."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from windlass._cli.escaping import document, line, lines
from windlass._cli.exit_codes import MEANINGS

from .conftest import Run

Start = Callable[..., subprocess.Popen[str]]


def in_terminal(start: Start, *arguments: str, columns: int = 80, **env: str) -> str:
    """What a person would see in a terminal that wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    clean = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}}
    process = start(*arguments, stdout=theirs, stderr=theirs, env={**clean, "TERM": "xterm-256color", **env})
    os.close(theirs)
    seen = b""
    try:
        while part := os.read(ours, 65536):
            seen += part
    except OSError:  # the other side has closed
        pass
    os.close(ours)
    process.wait(30)
    return seen.decode().replace("\r\n", "\n")


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


@pytest.mark.system
def test_colour_is_for_terminals(start: Start, run: Run, dead: Callable[..., list[str]]) -> None:
    dead("boom")

    assert "\x1b[1;31mdead" in in_terminal(start, "tasks", "list")
    assert "\x1b" not in run("tasks", "list").out
    assert "31m" not in in_terminal(start, "tasks", "list", NO_COLOR="1")
    assert "\x1b[1;31merror[not-found]:" in in_terminal(start, "--store", "sqlite:///no.db", "tasks", "list")


NASTY = "\x1b[2J\x1b]0;pwned\x07\x9b31m\x7f\u202egnp\u2028\r\n\tend"


@pytest.mark.parametrize("options", [(), ("--reveal",)])
def test_nothing_that_others_wrote_acts_on_the_terminal(
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


@given(st.text())
def test_escaped_text_is_printable_and_json_says_the_same(text: str) -> None:
    assert line(text).isprintable()
    assert all(one.isprintable() for one in lines(text))
    assert document({text: text}).isprintable()
    assert json.loads(document({text: text})) == {text: text}


@pytest.mark.system
def test_a_reader_that_has_seen_enough_is_no_error(run: Run, start: Start) -> None:
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
def test_a_poor_encoding_spoils_neither_json_nor_tables(start: Start, dead: Callable[..., list[str]]) -> None:
    dead("日本語")
    env = {"PYTHONIOENCODING": "ascii", "PATH": os.environ["PATH"]}

    table, _ = start("dead", "list", env=env).communicate(timeout=30)
    lines_of_json, _ = start("dead", "list", "--json", env=env).communicate(timeout=30)

    assert "Fatal: \\u65e5" in table
    assert json.loads(lines_of_json)["error"]["message"] == "日本語"


@pytest.mark.system
def test_help_is_quick(folder: Path) -> None:
    """It imports neither what draws tables nor any store."""
    command = [sys.executable, "-X", "importtime", "-m", "windlass._cli.main", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)

    imported = {row.rpartition("|")[2].strip() for row in ran.stderr.splitlines()}
    assert "click" in imported
    assert not {name for name in imported if name.split(".")[0] in {"rich", "sqlite3"} or "_stores." in name}


@pytest.mark.system
@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_there_is_a_hint(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from windlass._cli.main import main; main()"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert ran.returncode == 2
    assert (
        ran.stderr == f'error[not-installed]: the command line needs {missing}; pip install "windlass[cli]"\n'
    )


def test_help_tells_the_exit_codes(run: Run) -> None:
    ran = run("--help")

    assert ran.code == 0
    for code in MEANINGS:
        assert f"\n  {int(code)} " in ran.out


@pytest.mark.parametrize(
    "command",
    [
        (),
        *(("tasks", one) for one in ("list", "show", "cancel", "attempts")),
        *(("dead", one) for one in ("list", "show", "replay", "discard")),
        *(("queues", one) for one in ("list", "pause", "resume")),
        *((one,) for one in ("audit", "check", "completion", "enqueue", "migrate")),
        *((one,) for one in ("prune", "version", "worker", "workers", "tasks", "dead", "queues")),
    ],
)
def test_every_command_explains_itself(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command, "--help")

    assert ran.code == 0
    assert ran.out.startswith("Usage: windlass")
    assert all(len(row) <= 80 for row in ran.out.splitlines())


@pytest.mark.parametrize(
    ("command", "hint"),
    [
        (("taks",), "did you mean 'tasks'?"),
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


def test_shared_options_may_stand_before_or_after(run: Run) -> None:
    run("--store", "sqlite:///other.db", "enqueue", "t")

    before = run("--json", "--store", "sqlite:///other.db", "tasks", "list").rows
    after = run("tasks", "list", "--json", "--store", "sqlite:///other.db").rows

    assert before == after
    assert len(before) == 1


def test_no_command_at_all_gives_the_help(run: Run) -> None:
    ran = run()

    assert ran.code == 2
    assert "Usage: windlass" in ran.err
