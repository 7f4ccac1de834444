"""A shop app with its own SQLite file, and fixtures that run commands in its folder."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from windlass import App, WorkerSettings
from windlass._cli.root import root

SHOP = '''
"""The shop's tasks."""

from windlass import App, Backoff, Context, Fatal

app = App("sqlite:///windlass.db", secret=("card",))


@app.task(name="shop.welcome", queue="mail", max_attempts=3)
async def welcome(user_id: int, card: str = "") -> dict[str, object]:
    return {"user": user_id, "token": "t0ps3cret"}


@app.task(name="shop.explode")
async def explode(text: str = "boom") -> None:
    raise Fatal(text)


@app.task(name="shop.noting")
async def noting(*, ctx: Context) -> None:
    ctx.note(response_code=503, host="api")


@app.task(name="shop.stay")
async def stay() -> None:
    import asyncio
    from pathlib import Path

    Path("staying").touch()
    await asyncio.Event().wait()
'''


@dataclass(frozen=True)
class Ran:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def row(self) -> dict[str, Any]:
        (only,) = self.rows
        return only


Run = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Make the shop's folder the current one and clear windlass's environment variables."""
    (tmp_path / "shop.py").write_text(SHOP)
    for variable in [name for name in os.environ if name.startswith("WINDLASS_")]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    sys.modules.pop("shop", None)
    yield tmp_path
    sys.modules.pop("shop", None)


@pytest.fixture
def run(folder: Path) -> Run:
    """Run a command in this process."""

    def invoke(*arguments: str, stdin: str | bytes | None = None) -> Ran:
        sys.modules.pop("shop", None)
        result = CliRunner().invoke(root, arguments, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    return invoke


@pytest.fixture
def start(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command in a new process."""
    started: list[subprocess.Popen[str]] = []

    def begin(*arguments: str, **options: Any) -> subprocess.Popen[str]:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
        command = [sys.executable, "-m", "windlass._cli.main", *arguments]
        process = subprocess.Popen(command, text=True, **{**pipes, "cwd": folder, **options})
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def work(folder: Path) -> Callable[[], None]:
    """Run ready tasks until there are none."""

    def drain() -> None:
        async def all_of_it() -> None:
            import shop

            app: App = shop.app
            await app.worker(WorkerSettings(drain=True, keeper=False)).run()
            await app.close()

        sys.modules.pop("shop", None)
        sys.path.insert(0, str(folder))
        asyncio.run(all_of_it())

    return drain


@pytest.fixture
def enqueue(run: Run) -> Callable[..., str]:
    """Enqueue a task and return its id."""

    def one(*arguments: str) -> str:
        ran = run("enqueue", "--app", "shop:app", *arguments)
        assert ran.code == 0, ran.err
        return ran.out.strip()

    return one


@pytest.fixture
def dead(enqueue: Callable[..., str], work: Callable[[], None]) -> Callable[..., list[str]]:
    """Make dead letters whose errors have these texts; return their ids."""

    def some(*texts: str) -> list[str]:
        ids = [enqueue("shop.explode", json.dumps({"text": text})) for text in texts]
        work()
        return ids

    return some
