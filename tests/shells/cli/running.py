"""Commands that run until they are told to stop: what they say, and asking what they serve."""

import json
import subprocess
from collections.abc import Callable
from typing import Any
from urllib.request import Request, urlopen

Start = Callable[..., subprocess.Popen[str]]


def until(process: "subprocess.Popen[str]", words: str) -> list[str]:
    """The lines up to the one with these words."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if words in line:
            return lines
    raise AssertionError(f"it ended before it said {words!r}: {''.join(lines)}")


def ask(port: int, path: str, body: Any = None) -> Any:
    """What the server on this port answers: POST with a body, GET without."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"http://127.0.0.1:{port}{path}", data, {"content-type": "application/json"})
    with urlopen(request, timeout=30) as answer:
        return json.load(answer)
