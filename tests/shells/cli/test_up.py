"""`windlass up`: API, worker and keeper in one process, and a clean shutdown."""

import signal
import socket
from pathlib import Path

import pytest

from tests.servers.process import free_port

from .conftest import Run
from .processes import Start, ask, until

SLOW = """
from pathlib import Path
import asyncio
from windlass import App

app = App("sqlite:///windlass.db")

@app.task(name="slow.wait")
async def wait() -> str:
    Path("waiting").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "done"
"""

BROKEN = """
from windlass import App
from windlass._stores.sqlite import SQLiteStore
from windlass.errors import StoreError

class Broken(SQLiteStore):
    async def heartbeat(self, beat):
        raise StoreError("this store takes no heartbeat")

app = App(Broken("windlass.db"))

@app.task(name="broken.t")
async def t() -> None: ...
"""


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.mark.system
@pytest.mark.parametrize(
    ("store", "durability"), [("sqlite:///windlass.db", "durable ("), ("memory://", "volatile (")]
)
def test_it_serves_and_works(start: Start, folder: Path, port: int, store: str, durability: str) -> None:
    everything = start("up", "shop:app", "--store", store, "--port", str(port))
    line = until(everything, "serving")[-1]
    shown = store.replace("sqlite:///", f"sqlite:///{folder}/")
    assert f"serving {shown} at http://127.0.0.1:{port}; durability: {durability}" in line

    made = ask(port, "/tasks", {"type": "shop.welcome", "payload": {"user_id": 1}, "delay": 0.01})["id"]
    ended = ask(port, f"/tasks/{made}?wait=20")
    assert (ended["state"], ended["result"]["user"]) == ("completed", 1)
    while not ask(port, "/readyz")["keeper"]:  # pytest's own time limit ends it
        pass
    assert sorted(one["keeper"] for one in ask(port, "/workers")["items"]) == [False, True]

    everything.send_signal(signal.SIGTERM)
    out, rest = everything.communicate(timeout=20)
    assert everything.returncode == 0, rest
    assert out == ""
    assert "everything has stopped" in rest
    assert "Traceback" not in rest


@pytest.mark.system
def test_without_an_app_it_serves_and_runs_a_keeper(run: Run, start: Start, port: int) -> None:
    server = start("up", "--port", str(port))
    until(server, " leads")
    assert [one["keeper"] for one in ask(port, "/workers")["items"]] in ([], [True])
    made = ask(port, "/tasks", {"type": "x", "delay": 0.05})["id"]
    while ask(port, f"/tasks/{made}")["state"] != "ready":
        pass
    server.send_signal(signal.SIGINT)
    _, rest = server.communicate(timeout=20)
    assert server.returncode == 0, rest
    assert run("workers", "--json").rows == []


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_running_tasks_finish(
    run: Run, start: Start, folder: Path, port: int, number: signal.Signals
) -> None:
    (folder / "slow.py").write_text(SLOW)
    everything = start("up", "slow:app", "--port", str(port))
    until(everything, "serving")
    made = ask(port, "/tasks", {"type": "slow.wait"})["id"]
    while not (folder / "waiting").exists():
        pass
    everything.send_signal(number)
    until(everything, "for 1 running task to finish")
    (folder / "go").touch()
    _, rest = everything.communicate(timeout=20)

    assert everything.returncode == 0, rest
    task = run("tasks", "show", made, "--json").row
    assert (task["state"], task["attempt"]) == ("completed", 1)
    assert run("workers", "--json").rows == []


@pytest.mark.system
def test_a_second_signal_stops_at_once(run: Run, start: Start, folder: Path, port: int) -> None:
    (folder / "slow.py").write_text(SLOW)
    everything = start("up", "slow:app", "--port", str(port))
    until(everything, "serving")
    made = ask(port, "/tasks", {"type": "slow.wait"})["id"]
    while not (folder / "waiting").exists():
        pass
    everything.send_signal(signal.SIGINT)
    until(everything, "for 1 running task to finish")
    everything.send_signal(signal.SIGINT)
    _, rest = everything.communicate(timeout=10)

    assert everything.returncode == 0, rest
    assert "Traceback" not in rest
    task = run("tasks", "show", made, "--json").row
    assert (task["state"], task["attempt"]) == ("ready", 0)
    assert run("workers", "--json").rows == []


@pytest.mark.system
def test_a_port_that_is_taken_starts_nothing(run: Run, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        everything = start("up", "shop:app", "--port", str(number))
        _, err = everything.communicate(timeout=20)

    assert everything.returncode == 3
    message = f"port {number} on 127.0.0.1 is already in use; choose another with --port"
    assert err.splitlines()[-1] == f"error[refused]: {message}"
    assert run("workers", "--json").rows == []


@pytest.mark.system
def test_it_ends_if_its_worker_ends(start: Start, folder: Path, port: int) -> None:
    """A server that went on alone would accept tasks that nobody runs."""
    (folder / "broken.py").write_text(BROKEN)
    everything = start("up", "broken:app", "--port", str(port))
    _, err = everything.communicate(timeout=20)

    assert everything.returncode == 4
    assert "Traceback" not in err
    assert err.splitlines()[-1] == "error[store-error]: this store takes no heartbeat"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("shop:ap",), 2, "did you mean shop:app?"),
        (("shop:app", "--slots", "0"), 2, "slots"),
        (("shop:app", "--port", "0"), 2, "--port"),
        (("shop:app", "--host", "0.0.0.0"), 2, "without API keys"),
        (("shop:app", "--store", "sqlite:///nowhere/windlass.db"), 4, "nowhere"),
    ],
)
def test_an_invalid_command_is_refused(run: Run, arguments: tuple[str, ...], code: int, message: str) -> None:
    ran = run("up", *arguments)
    assert ran.code == code, ran.err
    assert message in ran.err
    assert "serving" not in ran.err
