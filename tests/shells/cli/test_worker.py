"""`windlass worker`: loading the app, settings, log lines at the start, signals."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.servers.process import free_port

from .conftest import Run

Start = Callable[..., subprocess.Popen[str]]


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("two", "two contains several apps; name one of two:first, two:second"),
        ("empty", "empty contains no windlass.App; name the module that has it, as in shop.tasks:app"),
        ("./shop.py", "not by its file: shop:app"),
        ("shop:ap", "did you mean shop:app?"),
        ("shop:welcome", "is a TaskType, not a windlass.App; did you mean shop:app?"),
        ("shopp:app", "did you mean shop?"),
        ("nowhere.at.all:app", "right folder"),
        ("empty:app", "empty contains no windlass.App"),
        ("broken:app", "importing broken failed: ZeroDivisionError: division by zero (broken.py:1)"),
        ("lacking:app", "No module named 'lacked'"),
        ("declaring:app", "is not a valid name: use 1 to 128"),
        ("declaring:app", "starting with a letter, a digit or _ (declaring.py:3); --debug"),
        (":app", "module:attribute"),
        ("shop:", "module:attribute"),
        ("..:app", "module:attribute"),
        ("\x1b[2J:app", "no module"),
    ],
)
def test_an_app_that_cannot_be_found_comes_with_a_hint(
    run: Run, folder: Path, target: str, complaint: str
) -> None:
    (folder / "empty.py").write_text("")
    (folder / "two.py").write_text("from windlass import App\nfirst, second = App(), App()\n")
    (folder / "broken.py").write_text("1 / 0")
    (folder / "lacking.py").write_text("import lacked")
    (folder / "declaring.py").write_text("from windlass import App\napp = App()\napp.task(lambda: None)\n")

    ran = run("worker", target)

    assert ran.code == 2
    assert complaint in ran.err
    assert "Traceback" not in ran.err
    assert "\x1b" not in ran.err


@pytest.mark.parametrize(
    "text",
    [
        "queue = App('sqlite:///windlass.db')\nalias = queue",
        "app, other = App('sqlite:///windlass.db'), App('memory://')",
    ],
)
def test_a_module_names_its_only_app_or_the_one_called_app(run: Run, folder: Path, text: str) -> None:
    (folder / "single.py").write_text(f"from windlass import App\n{text}\n")
    sys.modules.pop("single", None)

    ran = run("enqueue", "anything", "--undeclared", "--app", "single")

    assert ran.code == 0, ran.err


@pytest.mark.parametrize("command", ["worker", "up"])
def test_an_app_without_task_types_is_refused(run: Run, folder: Path, command: str) -> None:
    (folder / "bare.py").write_text("from windlass import App\n\napp = App()\n")

    ran = run(command, "bare:app")

    assert ran.code == 2
    assert "bare:app declares no task types" in ran.err
    assert "--import MODULE" in ran.err


@pytest.mark.parametrize("how", ["flag", "file", "environment"])
def test_modules_that_declare_task_types_are_imported_with_the_app(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (folder / "bare.py").write_text("from windlass import App\n\napp = App()\n")
    declare = "from bare import app\n\n\n@app.task(name='note')\ndef note() -> None: ...\n"
    (folder / "bare_tasks.py").write_text(declare)
    flags = ["--import", "bare_tasks"] if how == "flag" else []
    if how == "file":
        (folder / "windlass.toml").write_text('imports = ["bare_tasks"]')
    if how == "environment":
        monkeypatch.setenv("WINDLASS_IMPORTS", "bare_tasks")
    for module in ("bare", "bare_tasks"):
        monkeypatch.delitem(sys.modules, module, raising=False)

    made = run("enqueue", "note", "--app", "bare:app", *flags)
    wrong = run("enqueue", "note", "--app", "bare:app", "--import", "bare_task")

    assert made.code == 0, made.err
    assert wrong.code == 2
    assert "did you mean bare_tasks?" in wrong.err


def test_debug_shows_the_traceback(run: Run, folder: Path) -> None:
    (folder / "broken.py").write_text("1 / 0")

    assert "ZeroDivisionError" in run("worker", "broken:app", "--debug").err
    assert "Traceback" in run("worker", "broken:app", "--debug").err


def test_an_app_must_be_named_somewhere(run: Run) -> None:
    ran = run("worker")

    assert ran.code == 2
    assert "WINDLASS_APP" in ran.err


@pytest.mark.parametrize(
    "options",
    [
        ("--slots", "0"),
        ("--slots", "x"),
        ("--lease", "1", "--heartbeat", "1"),
        ("--queue", "a b"),
        ("--grace", "-1"),
        ("--log-format", "xml"),
    ],
)
def test_invalid_settings_are_refused(run: Run, options: tuple[str, ...]) -> None:
    assert run("worker", "shop:app", *options).code == 2


@pytest.mark.system
def test_drain_runs_ready_tasks_and_stops(
    run: Run, start: Start, enqueue: Callable[..., str], folder: Path
) -> None:
    done, left = enqueue("shop.welcome", '{"user_id": 1}'), enqueue("shop.explode")

    worker = start("worker", "--drain", "-q", "mail", env={"WINDLASS_APP": "shop:app"})
    out, err = worker.communicate(timeout=30)

    assert worker.returncode == 1, err
    assert "has drained: 1 task left: 1 in queue default, which it does not serve" in err
    assert out == ""
    first = err.splitlines()[0]
    for text in ("shop:app", "4 task types", f"sqlite:///{folder}/windlass.db"):
        assert text in first
    assert "created " not in err
    assert "32 slots, queues mail" in err
    assert err.count("durable: ") == 1
    states = {row["id"]: row["state"] for row in run("tasks", "list", "--json").rows}
    assert states == {done: "completed", left: "ready"}


@pytest.mark.system
@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_a_drain_that_leaves_tasks_says_so_once(
    start: Start, run: Run, enqueue: Callable[..., str], options: tuple[str, ...]
) -> None:
    run("enqueue", "shop.gone", "--undeclared")
    run("enqueue", "shop.gone", "-q", "unheard-of", "--undeclared")

    worker = start("worker", "shop:app", "--drain", *options)
    _, err = worker.communicate(timeout=60)

    assert worker.returncode == 1, err
    assert err.count("has drained: 2 tasks left: ") == 1
    assert "1 of type shop.gone in queue default, for which it has no handler" in err
    assert "1 in queue unheard-of, which it does not serve" in err


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_releases_running_tasks_and_exits_with_0(
    run: Run, start: Start, enqueue: Callable[..., str], number: signal.Signals
) -> None:
    task_id = enqueue("shop.stay")
    worker = start("worker", "shop:app", "--grace", "0", "--log-format", "json", "--log-level", "debug")
    assert worker.stderr is not None
    lines = [json.loads(worker.stderr.readline())]
    while lines[-1].get("event") != "claimed":
        lines.append(json.loads(worker.stderr.readline()))

    worker.send_signal(number)
    _, rest = worker.communicate(timeout=30)

    assert worker.returncode == 0, rest
    assert [line["durability"] for line in lines if "durability" in line] == ["durable"]
    task = run("tasks", "show", task_id, "--json").row
    assert (task["state"], task["attempt"]) == ("ready", 0)


@pytest.mark.system
def test_the_store_option_overrides_the_store_of_the_app(run: Run, start: Start, folder: Path) -> None:
    run("--store", "sqlite:///other.db", "enqueue", "shop.welcome", '{"user_id": 1}', "-q", "mail")

    worker = start("worker", "shop:app", "--drain", "--store", "sqlite:///other.db")
    _, err = worker.communicate(timeout=30)

    assert worker.returncode == 0, err
    assert run("--store", "sqlite:///other.db", "tasks", "list", "--json").row["state"] == "completed"
    assert not (folder / "windlass.db").exists()


@pytest.mark.system
def test_a_worker_tells_where_its_file_is_and_that_it_was_created(start: Start, folder: Path) -> None:
    """The same relative URL is another file in another folder."""
    worker = start("worker", "shop:app", "--drain")
    _, err = worker.communicate(timeout=30)

    assert f" on sqlite:///{folder}/windlass.db" in err.splitlines()[0]
    assert err.count(f"windlass.store: created {folder}/windlass.db\n") == 1


@pytest.mark.system
def test_a_volatile_store_is_logged_as_a_warning(start: Start, folder: Path) -> None:
    worker = start("worker", "shop:app", "--drain", "--store", "memory://", "--log-format", "json")
    _, err = worker.communicate(timeout=30)

    lines = [json.loads(line) for line in err.splitlines()]
    assert lines[0]["level"] == "warning"
    assert "loses all tasks" in lines[0]["message"]
    assert [line["durability"] for line in lines if "durability" in line] == ["volatile"]


@pytest.mark.system
def test_a_worker_ends_if_the_folder_of_its_store_is_missing(start: Start, folder: Path) -> None:
    """A permanent error ends the worker with one line instead of endless retries."""
    worker = start("worker", "shop:app", "--store", f"sqlite:///{folder}/missing/windlass.db")
    _, err = worker.communicate(timeout=30)

    assert worker.returncode == 4
    assert "does not exist" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--reserve", "lowest=1"), "one of high, medium, low"),
        (("--reserve", "low"), "a number for each level, as in low=2, not 'low'"),
        (("--reserve", "low=x"), "reserve must be a whole number"),
        (("--reserve", "low=40"), "cannot reserve 40 slots of 32"),
    ],
)
def test_an_invalid_reserve_is_refused(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = run("worker", "shop:app", *arguments)

    assert ran.code == 2
    assert message in ran.err


def test_a_worker_serves_all_queues(run: Run, start: Start, enqueue: Callable[..., str]) -> None:
    task_id = enqueue("shop.welcome", '{"user_id": 1}', "-q", "unheard-of")

    worker = start("worker", "shop:app", "--all-queues", "--drain")
    _, err = worker.communicate(timeout=30)

    assert worker.returncode == 0
    assert "queues all" in err
    assert run("tasks", "show", task_id, "--json").row["state"] == "completed"


@pytest.mark.system
def test_a_queue_that_no_task_type_has_is_logged_as_a_warning(
    run: Run, start: Start, enqueue: Callable[..., str]
) -> None:
    enqueue("shop.welcome", '{"user_id": 1}')

    _, typo = start("worker", "shop:app", "-q", "mial", "-q", "default", "--drain").communicate(timeout=60)
    _, right = start("worker", "shop:app", "-q", "mail", "--drain").communicate(timeout=60)

    assert "no task type of shop:app has queue 'mial'; did you mean 'mail'?" in typo
    assert "has queue 'default'" not in typo
    assert "no task type" not in right
    assert len(run("tasks", "list", "--state", "completed", "--json").rows) == 1


@pytest.mark.system
def test_hundreds_of_queues_that_no_task_type_has_are_one_warning(start: Start) -> None:
    queues = [part for number in range(600) for part in ("-q", f"customer-{number:03}")]

    _, err = start("worker", "shop:app", *queues, "--drain").communicate(timeout=60)

    [line] = [one for one in err.splitlines() if "no task type" in one]
    assert "no task type of shop:app has 600 of the queues: customer-000, customer-001, " in line
    assert "customer-004 and 595 more; they get only tasks that are enqueued with using(queue=…)" in line


def test_queues_and_all_queues_exclude_each_other(run: Run) -> None:
    ran = run("worker", "shop:app", "--all-queues", "-q", "mail")

    assert ran.code == 2
    assert "--queue and --all-queues exclude each other" in ran.err


SPANNED = """
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from windlass import App

app = App("sqlite:///shop.db")


@app.lifespan
async def database(_: App) -> AsyncIterator[None]:
    if Path("down").exists():
        raise ConnectionError("the database is down")
    yield
    Path("left").write_text(Path("ended").read_text())


@app.task
async def work() -> None:
    Path("started").touch()
    while not Path("stopping").exists():
        await asyncio.sleep(0.01)
    Path("ended").write_text("the handler has ended")
"""


@pytest.mark.system
@pytest.mark.parametrize("command", ["worker", pytest.param("up", marks=pytest.mark.full)])
def test_a_lifespan_that_fails_at_start_ends_the_command_with_its_name(
    start: Start, folder: Path, command: str
) -> None:
    (folder / "spanned.py").write_text(SPANNED)
    (folder / "down").touch()
    worker = start(command, "spanned:app", *(["--port", str(free_port())] if command == "up" else []))
    _, err = worker.communicate(timeout=60)

    assert worker.returncode == 1
    assert "error[lifespan-failed]: the lifespan spanned.database failed at start: ConnectionError" in (
        err.replace("\n", " ")
    )
    assert 'spanned.py", line ' in err


@pytest.mark.system
def test_a_signal_lets_the_handler_end_and_then_leaves_the_lifespan(
    run: Run, start: Start, folder: Path
) -> None:
    (folder / "spanned.py").write_text(SPANNED)
    assert run("enqueue", "spanned.work", "--app", "spanned:app").code == 0
    worker = start("worker", "spanned:app", "--log-format", "json", "--log-level", "debug")
    assert worker.stderr is not None
    lines = [json.loads(worker.stderr.readline())]
    while lines[-1].get("event") != "claimed":
        lines.append(json.loads(worker.stderr.readline()))
    worker.send_signal(signal.SIGTERM)
    while "stopping" not in lines[-1]["message"]:
        lines.append(json.loads(worker.stderr.readline()))
    (folder / "stopping").touch()
    worker.communicate(timeout=60)

    assert worker.returncode == 0
    assert (folder / "left").read_text() == "the handler has ended"
    assert '"completed"' in run("tasks", "list", "--json", "--app", "spanned:app").out
