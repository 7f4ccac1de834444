"""A server that takes Sentry's envelopes, on loopback."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import sentry_sdk
from sentry_sdk.envelope import Envelope


class Sink:
    """What was sent, in order."""

    def __init__(self, port: int) -> None:
        self.dsn = f"http://public@127.0.0.1:{port}/1"
        self.bodies: list[bytes] = []

    def items(self, kind: str) -> list[dict[str, Any]]:
        """Return the items of a kind ("event", "check_in") that have arrived."""
        sentry_sdk.flush(timeout=30)
        envelopes = [Envelope.deserialize(body) for body in self.bodies]
        found = [item for envelope in envelopes for item in envelope.items if item.type == kind]
        return [json.loads(item.get_bytes()) for item in found]


@contextmanager
def sentry_sink() -> Iterator[Sink]:
    """Run a sink for a block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            sink.bodies.append(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        sink = Sink(server.server_port)
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()
