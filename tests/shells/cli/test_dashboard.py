"""`windlass dashboard`, and the dashboard of `serve` and `up`."""

from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.servers.process import free_port

from .conftest import Run
from .processes import Start, ask, until


def get(url: str) -> tuple[str, str]:
    """Where a browser gets to, and what it sees."""
    with urlopen(Request(url, headers={"accept": "text/html"}), timeout=30) as response:
        return response.url, response.read().decode()


@pytest.mark.system
@pytest.mark.parametrize("arguments", [(), ("--processes", "2")], ids=["one", "processes"])
def test_it_shows_a_store_and_its_api_only_reads(run: Run, start: Start, arguments: tuple[str, ...]) -> None:
    run("enqueue", "hello", "--queue", "mail", "--undeclared")
    port = free_port()
    server = start("dashboard", "--port", str(port), *arguments)
    *_, line = until(server, "serving")
    assert f"dashboard: http://127.0.0.1:{port}/dashboard/" in line
    url, page = get(f"http://127.0.0.1:{port}/")
    assert url == f"http://127.0.0.1:{port}/dashboard/"
    assert "Overview" in page
    assert ask(port, "/queues")["items"]
    for path in ("/tasks", "/store/enqueue", "/queues/mail/pause"):
        with pytest.raises(HTTPError) as refused:
            ask(port, path, {})
        assert refused.value.code == 405
        assert "windlass serve" in refused.value.read().decode()
        refused.value.close()
    assert ask(port, "/readyz")["keeper"] is False


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--host", "0.0.0.0"), 2, "refusing to listen on 0.0.0.0 without API keys"),
        (("--trust-user-header", "X-User"), 2, "needs the addresses"),
        (("--trust-user-header", "X-User", "--trusted-proxy", "proxy"), 2, "not an address"),
        (("--proxy-role", "root"), 2, "--proxy-role"),
        (("--trace-url", "javascript:alert(1)//{trace}"), 2, "--trace-url"),
        (("--trace-url", "https://traces.example.org"), 2, "--trace-url"),
        (("--store", "sqlite:///missing.db"), 3, "missing.db"),
    ],
)
def test_what_is_wrong_is_refused(
    run: Run, arguments: tuple[str, ...], code: int, message: str, tmp_path: Path
) -> None:
    run("enqueue", "hello", "--undeclared")
    ran = run("dashboard", *arguments)
    assert (ran.code, message in ran.err) == (code, True), ran.err
    assert not (tmp_path / "missing.db").exists()


@pytest.mark.system
@pytest.mark.parametrize("command", [("serve",), ("up",)], ids=["serve", "up"])
def test_a_server_may_have_none(start: Start, command: tuple[str, ...]) -> None:
    port = free_port()
    server = start(*command, "--no-dashboard", "--port", str(port))
    *_, line = until(server, "serving")
    assert "dashboard" not in line
    for path in ("/dashboard/", "/"):
        with pytest.raises(HTTPError) as refused:
            get(f"http://127.0.0.1:{port}{path}")
        assert refused.value.code == 404
        refused.value.close()
    assert ask(port, "/healthz")["status"] == "ok"


@pytest.mark.system
def test_options_reach_every_process(run: Run, start: Start) -> None:
    run("enqueue", "hello", "--queue", "mail", "--undeclared")
    port = free_port()
    options = ("--trust-user-header", "X-User", "--trusted-proxy", "127.0.0.1", "--proxy-role", "admin")
    server = start("serve", "--port", str(port), "--processes", "2", "--read-only", *options)
    until(server, "serving")
    for _ in range(4):
        request = Request(f"http://127.0.0.1:{port}/dashboard/keys", headers={"x-user": "ann"})
        with urlopen(request, timeout=30) as response:
            page = response.read().decode()
        assert "Read-only" in page
        assert "ann" in page
