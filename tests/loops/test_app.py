"""App and task types: declarations, and the errors for wrong ones."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import (
    App,
    Backoff,
    InvalidOption,
    Retry,
    Snooze,
    WorkerSettings,
)


@pytest.fixture
def app() -> App:
    return App("memory://")


async def handler(user_id: int = 0) -> None: ...


@pytest.mark.parametrize("option", ["que", "retries"])
def test_an_unknown_option_is_refused(app: App, option: str) -> None:
    unknown: dict[str, Any] = {option: 3}

    with pytest.raises(InvalidOption, match=f"unknown option '{option}'; "):
        app.task(**unknown)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("secret", "card", "secret must be a sequence of names"),
        ("fatal", ("ValueError",), "fatal takes exception classes"),
        ("fatal", int, "fatal takes exception classes"),
        ("backoff", "quick", "backoff must be a Backoff or a function"),
        ("queue", "a b", "queue"),
        ("priority", "urgent", "priority"),
        ("timeout", 0, "timeout"),
        ("max_attempts", 0, "max_attempts"),
    ],
)
def test_a_senseless_option_is_refused(app: App, option: str, value: Any, message: str) -> None:
    senseless: dict[str, Any] = {option: value}

    with pytest.raises(InvalidOption, match=message):
        app.task(**senseless)(handler)

    assert not app.types


def test_a_type_is_declared_once(app: App) -> None:
    app.task(name="twice")(handler)

    with pytest.raises(InvalidOption, match="already declared on this app"):
        app.task(name="twice")(handler)


def test_the_presets_are_at_hand() -> None:
    assert Backoff.QUICK.max_attempts == 6
    assert Backoff.PATIENT.cap == 1800
    assert Backoff.EXPONENTIAL.jitter == 0.5
    assert Backoff.ADDITIVE.spread == 1


@pytest.mark.parametrize(("name", "value"), [("lease", "30s"), ("heartbeat", 5), ("queues", "mail")])
def test_senseless_worker_settings_are_refused(name: str, value: Any) -> None:
    senseless: dict[str, Any] = {name: value}

    with pytest.raises(InvalidOption, match=name):
        WorkerSettings(**senseless)


@pytest.mark.parametrize("wrong", [3, "quick"])
def test_an_apps_backoff_is_checked(wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="backoff must be"):
        App("memory://", backoff=wrong)


def test_signals_take_durations_as_text() -> None:
    assert Snooze("5m").delay == timedelta(minutes=5)
    assert Retry(after="1h").after == timedelta(hours=1)
    assert Retry().after is None


def test_an_app_can_be_a_worker_process(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "from windlass import App, WorkerSettings\n"
        "app = App(f'sqlite:///{__file__}.db')\n"
        "@app.task(name='hello')\n"
        "async def hello() -> None:\n"
        "    print('ran', flush=True)\n"
        "if __name__ == '__main__':\n"
        "    hello.enqueue()\n"
        "    app.run_worker(WorkerSettings(drain=True))\n"
    )

    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=30, check=True)

    assert ran.stdout == "ran\n"


def test_a_worker_process_writes_what_its_program_has_in_buffers_when_it_exits(tmp_path: Path) -> None:
    script, report = tmp_path / "program.py", tmp_path / "report.txt"
    script.write_text(
        "from windlass import App, WorkerSettings\n"
        "app = App(f'sqlite:///{__file__}.db')\n"
        f"report = open({str(report)!r}, 'w')\n"
        "@app.task(name='hello')\n"
        "async def hello() -> None:\n"
        "    report.write('ran')\n"
        "if __name__ == '__main__':\n"
        "    hello.enqueue()\n"
        "    app.run_worker(WorkerSettings(drain=True))\n"
    )

    subprocess.run([sys.executable, script], capture_output=True, timeout=30, check=True)

    assert report.read_text() == "ran"


@pytest.mark.parametrize("url", ["", " ", "\n"])
def test_an_empty_url_is_refused_with_the_urls_that_there_are(url: str) -> None:
    with pytest.raises(InvalidOption, match=r"the URL of the store is empty; use postgresql://.* memory://$"):
        App(url)


@pytest.mark.parametrize("scheme", ["postgresql+psycopg", "postgres+asyncpg"])
def test_a_url_of_sqlalchemy_is_refused_with_the_remedy(scheme: str) -> None:
    with pytest.raises(InvalidOption, match=r"names a driver, .* write postgresql://") as caught:
        App(f"{scheme}://ann:hunter2@host/shop")
    assert "hunter2" not in str(caught.value)
