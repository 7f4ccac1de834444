"""A receiver of webhook messages, on the loopback, that does as it is told."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from windlass.alerts import verify_signature

SECRET = "whsec_d2luZGxhc3MgaG9sZHMgaXRzIHRvbmd1ZSE="


@dataclass(frozen=True)
class Message:
    """What came: where to, the body, and whether it was signed with the secret."""

    path: str
    body: dict[str, Any]
    signed: bool
    headers: dict[str, str]


@dataclass
class Receiver:
    """Answers with these statuses, then with 200. Before each answer it waits for the gate."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)

    def ids(self) -> list[str]:
        return [message.headers["webhook-id"] for message in self.messages]

    def states(self) -> list[str]:
        return [message.body["data"]["state"] for message in self.messages]


@contextmanager
def webhook_receiver(*statuses: int, slow: bool = False) -> Iterator[Receiver]:
    """A server at work, until the end of the block; a slow one answers once its gate is opened."""
    receiver = Receiver(statuses=[*statuses])
    if not slow:
        receiver.gate.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = dict(self.headers.items())
            signed = verify_signature(SECRET, headers, body)
            receiver.messages.append(Message(self.path, json.loads(body), signed, headers))
            receiver.gate.wait(30)
            status = receiver.statuses.pop(0) if receiver.statuses else 200
            self.send_response(status)
            if 300 <= status < 400:
                self.send_header("Location", f"{receiver.url}elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            receiver.messages.append(Message(self.path, {"data": {"state": "followed"}}, False, {}))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  who gave up is gone
    receiver.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()
