"""An HTTP server on the loopback that records what it is sent, and answers as it is told."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """A request: its method, path with query, headers and body."""

    method: str
    path: str
    headers: Message
    body: bytes


@dataclass
class Answer:
    """A response. `before` is called when the request has been read, and may wait."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    before: Callable[[], Any] = lambda: None
    cut: bool = False  # close the connection instead of answering


@dataclass
class Sink:
    """The answers that are left, the last of which is given again and again; and what came."""

    answers: list[Answer] = field(default_factory=list)
    route: Callable[[Received], Answer | None] = lambda _: None
    received: list[Received] = field(default_factory=list)
    url: str = ""

    def answer(self, request: Received) -> Answer:
        self.received.append(request)
        if (found := self.route(request)) is not None:
            return found
        if len(self.answers) > 1:
            return self.answers.pop(0)
        return self.answers[0] if self.answers else Answer()


@contextmanager
def http_sink(
    *answers: Answer, route: Callable[[Received], Answer | None] = lambda _: None
) -> Iterator[Sink]:
    """A server at work, until the end of the block."""
    sink = Sink([*answers], route)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def any_method(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            given = sink.answer(Received(self.command, self.path, self.headers, body))
            given.before()
            if given.cut:
                self.close_connection = True
                return
            self.send_response(given.status)
            for name, value in ({"Content-Length": str(len(given.body))} | given.headers).items():
                self.send_header(name, value)
            self.end_headers()
            with suppress(OSError):  # a client may have read enough
                self.wfile.write(given.body)

        def log_message(self, *_: object) -> None: ...

    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
        setattr(Handler, f"do_{method}", Handler.any_method)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    sink.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
