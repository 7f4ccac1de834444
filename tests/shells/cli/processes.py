"""Helpers for commands that run until stopped: read their log, query their API."""

import json
import subprocess
from collections.abc import Callable
from typing import Any
from urllib.request import Request, urlopen

Start = Callable[..., subprocess.Popen[str]]


def until(process: "subprocess.Popen[str]", words: str) -> list[str]:
    """Read the log up to the line that contains these words."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError(f"the process ended before it logged {words!r}: {''.join(lines)}")


def ask(port: int, path: str, body: Any = None) -> Any:
    """Send a request to the server on this port, POST with a body and GET without, and return the JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
    with urlopen(request, timeout=30) as response:
        return json.load(response)
