"""`windlass serve --processes N`: kill, stall and stop its processes under load."""

import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest

from tests.servers.postgres import Postgres
from tests.system.fleet import wait_until
from tests.system.server_processes import Load, ServerProcesses
from tests.system.supervised import has_ended
from windlass import App

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

Serve = Callable[..., ServerProcesses]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with ExitStack() as running:

        def start(number: int, *options: str, store: str = "") -> ServerProcesses:
            return running.enter_context(ServerProcesses(tmp_path, number, *options, store=store))

        yield start


def test_it_logs_once_that_it_serves_and_a_signal_ends_all(serve: Serve) -> None:
    server = serve(3)
    children = server.children
    waiting = server.client()
    status, made = server.client()("POST", "/tasks", '{"type": "t"}')
    with socket.create_connection(("127.0.0.1", server.port)) as stream:
        stream.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert stream.recv(4096)
        began = monotonic()
        server.parent.terminate()
        assert server.parent.wait(10) == 0
    assert monotonic() - began < 5  # streams end at once
    assert (status, len(children), len(set(children))) == (201, 3, 3)
    assert made
    assert all(has_ended(pid) for pid in children)
    assert server.log.count("serving") == server.log.count("the server has stopped") == 1
    assert len(re.findall(r"keeper \S+ leads", server.log)) == 1
    assert "[process 1]" in server.log
    assert server.log.count("windlass keys create LABEL") == 1
    assert "Traceback" not in server.log
    with pytest.raises(ConnectionRefusedError):
        waiting("GET", "/healthz")


def test_the_second_signal_does_not_wait_for_requests(serve: Serve) -> None:
    server = serve(2)
    with socket.create_connection(("127.0.0.1", server.port)) as stream:
        stream.sendall(
            b"POST /tasks/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n"
            b'Content-Type: application/x-ndjson\r\n\r\ne\r\n{"type": "t"}\n\r\n'
        )
        assert b"200" in stream.recv(4096)
        server.parent.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            server.parent.wait(1.5)
        began = monotonic()
        server.parent.send_signal(signal.SIGINT)
        assert server.parent.wait(10) == 0
    assert monotonic() - began < 4


def test_a_killed_process_is_replaced_and_only_its_own_connections_break(serve: Serve) -> None:
    server = serve(3)
    children = server.children
    with Load(server, 12) as load:
        wait_until(lambda: load.statuses[200] > 200, 20, what="requests are answered")
        owners = {client.port: server.owner(client.port) for client in load.clients}
        victim = next(pid for pid in owners.values() if pid is not None)
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: len(set(server.children) - set(children)) == 1, 20, what="it is replaced")
        before = load.statuses[200]
        wait_until(lambda: load.statuses[200] > before + 200, 20, what="requests go on")
    broken = [port for port in load.failed if port]
    assert set(load.statuses) == {200}
    assert {owners[port] for port in broken} == {victim}
    assert len(broken) == len(set(broken)) == sum(owner == victim for owner in owners.values())
    assert "was killed by SIGKILL; restarting it in 0 s" in server.log
    assert len(server.children) == 3


def test_a_stalled_process_is_replaced_and_new_connections_do_not_wait_for_it(serve: Serve) -> None:
    server = serve(2)
    stalled = server.children[1]
    os.kill(stalled, signal.SIGSTOP)
    longest, number = 0.0, 0
    deadline = monotonic() + 25
    while stalled in server.children:
        assert monotonic() < deadline, server.log
        began, client = monotonic(), server.client()
        assert client("GET", "/healthz")[0] == 200
        client.close()
        longest, number = max(longest, monotonic() - began), number + 1
    assert number > 10
    assert longest < 4
    noticed = f"server process 2 (pid {stalled}) gave no sign of life for 5 s and was killed"
    wait_until(lambda: noticed in server.log, 20, what="it is logged")
    wait_until(lambda: len(server.children) == 2, 20, what="it is replaced")


def test_killing_the_supervisor_ends_its_processes(serve: Serve, tmp_path: Path) -> None:
    server = serve(2)
    assert len([*tmp_path.glob("windlass-*")]) == 1
    children = server.children
    server.parent.kill()
    server.parent.wait()
    wait_until(lambda: all(has_ended(pid) for pid in children), 20, what="the processes have ended")
    assert [*tmp_path.glob("windlass-*")] == []
    with pytest.raises(ConnectionRefusedError):
        server.client()("GET", "/healthz")


def test_one_rate_holds_for_all_processes(serve: Serve, tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/windlass.db")
    made = app.sync_operator.keys.create("fast", scopes=["read"], rate=50)
    server = serve(4)
    began = monotonic()
    with Load(server, 12, made.text, "/queues") as load:
        wait_until(lambda: len({server.owner(one.port) for one in load.clients}) > 1, 20, what="they spread")
        wait_until(lambda: monotonic() - began > 4, 10, what="time passes")
    elapsed = monotonic() - began
    assert {200, 429} <= set(load.statuses) <= {200, 429, 503}  # 503: busy, on a busy machine
    assert 0.5 * 50 * elapsed < load.statuses[200] <= 50 + 50 * elapsed


def test_metrics_are_those_of_all_processes_and_no_counter_falls(serve: Serve) -> None:
    server = serve(3)
    clients = [server.client() for _ in range(12)]

    def metrics() -> bytes:
        return server.client()("GET", "/metrics")[1]

    for client in clients:
        assert client("POST", "/tasks", '{"type": "t"}')[0] == 201
    counted = b'windlass_tasks_enqueued_total{queue="default",type="t"} 12.0'
    assert counted in metrics()
    before = server.children
    os.kill(next(pid for one in clients if (pid := server.owner(one.port))), signal.SIGKILL)
    wait_until(lambda: len(set(server.children) - set(before)) == 1, 20, what="it is replaced")
    alive = [f'process_resident_memory_bytes{{process="{number}"}}'.encode() for number in (1, 2, 3)]
    wait_until(lambda: all(one in metrics() for one in alive), 20, what="each has started")
    assert counted in metrics()
    assert metrics().count(b"windlass_build_info{") == 1


def test_a_rolling_restart_fails_no_request_and_keeps_the_metrics(serve: Serve) -> None:
    server = serve(2)
    before = server.children
    assert server.client()("POST", "/tasks", '{"type": "t"}')[0] == 201
    server.parent.send_signal(signal.SIGHUP)

    def replaced() -> bool:
        assert server.client()("GET", "/healthz")[0] == 200
        return server.log.count("has taken over from") == 2

    wait_until(replaced, 60, what="both are replaced")
    assert set(server.children).isdisjoint(before)
    metrics = server.client()("GET", "/metrics")[1]
    assert b'windlass_tasks_enqueued_total{queue="default",type="t"} 1.0' in metrics
    assert metrics.count(b"process_resident_memory_bytes{") == 2


def test_it_serves_postgres(serve: Serve, postgres_newest: Postgres) -> None:
    server = serve(2, store=f"{postgres_newest.url}?schema=serve_processes")
    with Load(server, 6, path="/tasks") as load:
        wait_until(lambda: load.statuses[200] > 50, 20, what="requests are answered")
    assert server.client()("POST", "/tasks", '{"type": "t"}')[0] == 201
    assert set(load.statuses) == {200}
