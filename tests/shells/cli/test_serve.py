"""`windlass serve`: keys, addresses, signals; and workers that use it as their store."""

import json
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.servers.process import free_port

from .conftest import Run
from .processes import Start, ask, until

WORKER = ("work", "read", "operate", "enqueue")


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def key(run: Run) -> Callable[..., str]:
    """Create a key with these scopes and return its text."""

    def make(*scopes: str) -> str:
        ran = run("keys", "create", "test", *(word for scope in scopes for word in ("--scope", scope)))
        assert ran.code == 0, ran.err
        return ran.out.strip()

    return make


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_keys_it_refuses_other_addresses_than_this_machine(run: Run, host: str) -> None:
    ran = run("serve", "--host", host)

    assert ran.code == 2
    assert f"refusing to listen on {host} without API keys" in ran.err
    assert "--insecure" in ran.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--port", "0"), "--port"),
        (("--port", "65536"), "--port"),
        (("--port", "http"), "--port"),
        (("--host", "192.0.2.1", "--insecure"), "cannot listen on 192.0.2.1: Cannot assign"),
        (("--host", "nowhere.invalid", "--insecure"), "cannot listen on nowhere.invalid"),
        (("--store", "memory://"), "memory://"),
        (("--store", "memory://", "--processes", "2"), "exists only inside the process that made it"),
        (("--processes", "0"), "--processes"),
        (("--processes", "65"), "--processes"),
        (("--processes", "2", "--host", "192.0.2.1", "--insecure"), "cannot listen on 192.0.2.1"),
        (("--allow-origin", "*"), "'*' is not an origin"),
    ],
)
def test_an_invalid_address_is_refused(run: Run, arguments: tuple[str, ...], message: str) -> None:
    ran = run("serve", *arguments)

    assert ran.code == 2, ran.err
    assert message in ran.err
    assert "serving" not in ran.err


def test_a_port_that_is_taken_is_refused(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        ran = run("serve", "--port", str(number))

    assert ran.code == 3
    assert f"port {number} on 127.0.0.1 is already in use" in ran.err.splitlines()[-1]
    assert "serving" not in ran.err


@pytest.mark.system
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_while_a_worker_is_connected(
    start: Start, key: Callable[..., str], port: int, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_KEY", key(*WORKER))
    server = start("serve", "--no-keeper", "--port", str(port))
    (line,) = until(server, "serving")
    worker = start("worker", "shop:app", "--store", f"http://127.0.0.1:{port}")
    until(worker, "durable: ")
    until(worker, " leads")

    server.send_signal(number)
    _, rest = server.communicate(timeout=8)
    until(worker, "retrying")
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=20)

    store = f"sqlite:///{Path.cwd()}/windlass.db"
    for text in (f"http://127.0.0.1:{port};", store, "durable (a commit returns once"):
        assert text in line
    assert server.returncode == 0, rest
    assert "has stopped" in rest
    assert " error " not in rest
    assert "uvicorn" not in rest.lower()
    assert worker.returncode == 0


@pytest.mark.system
def test_without_keys_it_serves_this_machine_and_logs_so(start: Start, port: int) -> None:
    server = start("serve", "--port", str(port))
    until(server, "serving")
    until(server, "there are no API keys: every user and program of this machine has full access")

    with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as response:
        assert response.status == 200
    worker = start("worker", "shop:app", "--drain", "--store", f"http://127.0.0.1:{port}")
    _, err = worker.communicate(timeout=20)

    assert worker.returncode == 0, err
    assert "HTTP Request" not in err


@pytest.mark.system
def test_with_the_last_key_revoked_it_stays_closed_and_logs_what_to_do(
    run: Run, start: Start, key: Callable[..., str], port: int
) -> None:
    run("keys", "revoke", key("admin").split("_")[1])
    server = start("serve", "--port", str(port))
    until(
        server, "every API key is revoked or expired, so all requests are refused; create one with `windlass"
    )

    for path, body in (("/tasks", None), ("/keys", {"label": "ghost", "scopes": ["admin"]})):
        with pytest.raises(HTTPError) as refused:
            ask(port, path, body)
        assert refused.value.code == 401
        refused.value.close()
    until(server, "refused POST /keys from 127.0.0.1: no_key")
    assert run("keys", "list", "--json").rows == []


@pytest.mark.system
def test_a_worker_whose_key_is_refused_ends_with_the_reason(
    run: Run, start: Start, key: Callable[..., str], port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking, good = key("work", "read"), key(*WORKER)
    revoked, without_enqueue = key(*WORKER), key("work", "read", "operate")
    run("keys", "revoke", revoked.split("_")[1])
    until(start("serve", "--port", str(port)), "serving")
    url = f"http://127.0.0.1:{port}"

    def worker(key: str, store: str = url) -> tuple[int, str]:
        monkeypatch.setenv("WINDLASS_KEY", key)
        ran = run("worker", "shop:app", "--store", store, "--drain")
        assert "Traceback" not in ran.err
        if key:
            assert key not in ran.err
        return ran.code, "".join(ran.err.splitlines()[-1:])

    code, error = worker("")
    assert code == 4
    assert error.startswith(
        f"error[store-error]: {url} requires a key: create one there with `windlass keys create`"
    )
    for wrong in ("wl_nothing", revoked, good[:-1] + ("a" if good[-1] != "a" else "b")):
        code, error = worker(wrong)
        assert (code, "rejected the key in WINDLASS_KEY" in error) == (4, True), error
    code, error = worker(lacking)  # it cannot even publish the app's task types
    assert (code, error.endswith("this key lacks the scope operate")) == (4, True), error
    code, error = worker(without_enqueue)
    assert code == 4
    assert error.endswith("needs the scopes work, read, operate, enqueue; this one lacks enqueue")
    code, error = worker(good, f"{url}/shop")
    assert (code, "there is no such path" in error) == (4, True), error
    assert worker("two words")[0] == 2
    assert worker(good, url.replace("//", f"//x:{lacking}@"))[0] == 2
    assert worker(good, "http://127.0.0.1:port")[0] == 2
    assert worker(good)[0] == 0


@pytest.mark.system
def test_a_worker_waits_for_an_unreachable_server_and_other_commands_fail(
    run: Run, start: Start, port: int
) -> None:
    url = f"http://127.0.0.1:{port}"
    worker = start("worker", "shop:app", "--store", url, "--drain")
    until(worker, f"not available, retrying: cannot connect to {url}: Connection refused")
    listed = run("tasks", "list", "--store", url)

    until(start("serve", "--port", str(port)), "serving")
    _, err = worker.communicate(timeout=20)

    refused = (
        f"error[store-unavailable]: cannot connect to {url}: Connection refused; check host and port, and "
        f"that `windlass serve` is running there\n"
    )
    assert (listed.code, listed.err) == (4, refused)
    assert worker.returncode == 0, err


@pytest.mark.system
def test_a_restart_of_the_server_is_two_lines_in_the_log_of_a_worker(start: Start, port: int) -> None:
    url = f"http://127.0.0.1:{port}"
    worker = start("worker", "shop:app", "--store", url, "--heartbeat", "0.3s", "--poll", "0.2s")
    lines = until(
        worker, f"the store is not available, retrying: cannot connect to {url}: Connection refused"
    )
    server = start("serve", "--port", str(port))
    lines += until(worker, "the store is back after")
    lines += until(worker, "is ready")
    server.kill()
    server.communicate()
    lines += until(worker, "the store is not available")
    start("serve", "--port", str(port))
    lines += until(worker, "the store is back after")
    worker.terminate()
    _, rest = worker.communicate(timeout=30)

    told = [line for line in [*lines, *rest.splitlines()] if "warning" in line or "error" in line]
    assert [("back after" in line, "windlass.store" in line) for line in told] == [
        (False, True),
        (True, True),
        (False, True),
        (True, True),
    ], told


@pytest.mark.system
def test_another_server_gets_another_error_than_an_unreachable_one(run: Run, start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        worker = start("worker", "shop:app", "--store", url)
        caller, _ = other.accept()
        with caller:
            caller.recv(65536)
            caller.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnope")
            _, err = worker.communicate(timeout=20)

    assert worker.returncode == 4
    assert (
        f"{url} answered 404 without a windlass problem document; is this the address of a `windlass serve`?"
        in err
    )


@pytest.mark.system
def test_it_runs_a_keeper_unless_told_not_to(start: Start, port: int) -> None:
    idle = start("serve", "--no-keeper", "--port", str(port))
    until(idle, "serving")
    assert ask(port, "/readyz")["keeper"] is False
    made = ask(port, "/tasks", {"type": "shop.welcome", "delay": 0.05})["id"]
    other = free_port()
    keeping = start("serve", "--port", str(other))
    until(keeping, " leads")

    while ask(port, f"/tasks/{made}")["state"] != "ready":  # pytest's own time limit ends it
        pass
    while not ask(port, "/readyz")["keeper"]:
        pass
    keeping.send_signal(signal.SIGTERM)
    _, rest = keeping.communicate(timeout=20)

    assert keeping.returncode == 0, rest
    assert ask(port, "/readyz")["keeper"] is False


@pytest.mark.system
def test_json_logs_name_the_server_process(start: Start, port: int) -> None:
    server = start(
        "serve", "--port", str(port), "--processes", "2", "--log-format", "json", "--app", "shop:app"
    )
    lines = [json.loads(line) for line in until(server, "serving")]
    ask(port, "/tasks", {"type": "shop.welcome", "payload": {"user_id": 1}})
    server.send_signal(signal.SIGTERM)
    _, rest = server.communicate(timeout=20)
    lines += [json.loads(line) for line in rest.splitlines()]

    assert server.returncode == 0
    assert {line.get("server_process") for line in lines if "leads" in line["message"]} == {1}
    assert [line.get("server_process", "-") for line in lines if "serving" in line["message"]] == ["-"]
    assert {line.get("server_process") for line in lines if line["logger"] == "windlass.http"} == {None}


@pytest.mark.system
def test_an_app_that_fails_in_a_process_ends_the_server_with_its_reason(
    start: Start, folder: Path, port: int
) -> None:
    (folder / "once.py").write_text(
        "import os, sys\nfrom windlass import App\n"
        "if 'server_process' in ' '.join(sys.orig_argv): raise ValueError('only once')\napp = App('sqlite:///windlass.db')\n"
    )
    server = start("serve", "--port", str(port), "--processes", "2", "--app", "once:app")
    _, err = server.communicate(timeout=30)

    assert server.returncode == 3, err
    assert "importing once failed: ValueError: only once" in err
    assert "exited with status 2 before it was ready; its log says why" in err.splitlines()[-1]
    assert "Traceback" not in err
