"""The root command: help, shared options, `version`, `completion`, and what it imports."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from windlass._cli.exit_codes import MEANINGS
from windlass._cli.root import root
from windlass._policy.other_queues import COMMANDS, SWITCHES

from .conftest import Run


@pytest.mark.system
def test_help_is_quick(folder: Path) -> None:
    """It imports neither rich nor any store."""
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


@pytest.mark.system
def test_the_command_runs_as_a_module_of_python(folder: Path) -> None:
    command = [sys.executable, "-m", "windlass", "enqueue", "greet", "--undeclared", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr) == (0, "")
    shown = [sys.executable, "-m", "windlass", "tasks", "show", json.loads(ran.stdout)["id"], "--json"]
    task = json.loads(subprocess.run(shown, capture_output=True, text=True, check=True).stdout)
    assert task["enqueued_by"].startswith("windlass@")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("worker --concurrency 4", "No such option '--concurrency'; use --slots;"),
        ("worker -c4 shop:app", "No such option '-c'; use --slots;"),
        ("-A shop worker", "No such option '-A'; use --app;"),
        ("tasks retry", "No such command 'retry'; use `windlass dead replay`;"),
        ("tasks enqueue", "No such command 'enqueue'; use `windlass enqueue`;"),
        ("errors", "No such command 'errors'; use `windlass dead failures`;"),
        ("tasks -c", "No such option '-c'; see"),  # as nothing there is like it
    ],
)
def test_words_of_other_task_queues_are_translated(run: Run, typed: str, meant: str) -> None:
    ran = run(*typed.split())

    assert ran.code == 2
    assert meant in ran.err.replace("\n", " ")


@pytest.mark.parametrize("here", sorted({*COMMANDS.values()}))
def test_what_a_command_is_translated_to_exists(run: Run, here: str) -> None:
    command, _, option = here.partition("--")
    ran = run(*command.split(), "--help")

    assert ran.code == 0
    assert f"--{option}" in ran.out


def test_what_an_option_is_translated_to_exists() -> None:
    context = click.Context(root)
    named = [root.get_command(context, name) for name in root.list_commands(context)]
    known = {option for one in named if one is not None for param in one.params for option in param.opts}

    assert {*SWITCHES.values()} <= known
    assert not {*SWITCHES} & known


def test_help_explains_the_exit_codes(run: Run) -> None:
    ran = run("--help")

    assert ran.code == 0
    for code in MEANINGS:
        assert f"\n  {int(code)} " in ran.out


def commands() -> Iterator[tuple[str, ...]]:
    """The words of every command and group, the root included."""
    context = click.Context(root)
    yield ()
    for name in root.list_commands(context):
        command = root.get_command(context, name)
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, below) for below in command.list_commands(context))


@pytest.mark.parametrize("command", [*commands()], ids=" ".join)
def test_every_command_has_help_within_80_columns(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command, "--help")

    assert ran.code == 0
    assert ran.out.startswith("Usage: windlass")
    assert all(len(row) <= 80 for row in ran.out.splitlines())
    assert "..." not in ran.out.partition("Commands:")[2], "a summary is cut off"


@pytest.mark.parametrize("command", [(), ("schedules",)], ids=" ".join)
def test_summaries_are_whole_in_a_narrow_terminal(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(root, [*command, "--help"], terminal_width=60).stdout
    summaries = shown.partition("Commands:")[2]

    assert summaries
    assert "..." not in summaries
    assert all(len(row) <= 60 for row in summaries.splitlines())


def test_the_help_of_a_worker_has_the_defaults_of_its_settings(run: Run) -> None:
    shown = " ".join(run("worker", "--help").out.split())

    for option, default in {
        "slots": "32",
        "grace": "25s",
        "lease": "30s",
        "heartbeat": "5s",
        "poll": "2s",
    }.items():
        assert f"[default: {default}]" in shown.partition(f"--{option} ")[2].partition(" --")[0]


@pytest.mark.parametrize("how", ["version", "--version"])
def test_the_version_is_printed(run: Run, how: str) -> None:
    ran = run(how)
    assert ran.code == 0
    assert ran.out.startswith(f"windlass {version('windlass')} (Python 3.")
    assert set(run("--json", how).row) == {"windlass", "python"}


def test_shared_options_may_stand_before_or_after(run: Run) -> None:
    run("--store", "sqlite:///other.db", "enqueue", "t")

    before = run("--json", "--store", "sqlite:///other.db", "tasks", "list").rows
    after = run("tasks", "list", "--json", "--store", "sqlite:///other.db").rows

    assert before == after
    assert len(before) == 1


def test_without_a_command_it_prints_the_help(run: Run) -> None:
    ran = run()

    assert ran.code == 2
    assert "Usage: windlass" in ran.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(run: Run, shell: str) -> None:
    ran = run("completion", shell)

    assert ran.code == 0
    assert "_WINDLASS_COMPLETE" in ran.out


def test_completion_completes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_WINDLASS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "windlass ta")
    monkeypatch.setenv("COMP_CWORD", "1")

    assert "tasks" in run().out
