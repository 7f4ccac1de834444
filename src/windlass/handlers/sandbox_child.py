"""The program of a sandbox's child process. It imports nothing of windlass, so that it starts quickly."""

import json
import resource
import sys
from collections.abc import Sequence
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

_LENGTH = 4


def main() -> None:
    """Read one request, call its function within its bounds, and write the reply."""
    request, inputs = unframed(sys.stdin.buffer.read())
    path, _, name = request["function"].rpartition(":")
    function = getattr(_module(path), name)
    _limit(request["memory"], request["cpu"])
    outputs: list[bytes] = []
    try:
        value, outputs = function(request["options"], inputs)
        reply: dict[str, Any] = {"value": value}
    except MemoryError:
        reply = {"error": f"it needs more than {request['memory'] >> 20} MiB of memory"}
    except Exception as error:  # noqa: BLE001  whatever a parser raises is about its input
        reply = {"error": f"{type(error).__name__}: {error}"[:2_000]}
    sys.stdout.buffer.write(framed(reply, outputs))


def framed(head: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    """Encode a message: the length of its head, the head as JSON with the sizes of the parts, and these."""
    encoded = json.dumps({**head, "sizes": [len(part) for part in parts]}).encode()
    return b"".join((len(encoded).to_bytes(_LENGTH, "big"), encoded, *parts))


def unframed(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    """Decode a message. Raises ValueError or TypeError if it is damaged."""
    at = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    head: dict[str, Any] = json.loads(data[_LENGTH:at])
    parts: list[bytes] = []
    for size in head.pop("sizes"):
        parts.append(data[at : at + size])
        at += size
    if at != len(data):
        raise ValueError("not whole")
    return head, parts


def _module(path: str) -> Any:
    spec = spec_from_file_location("sandboxed", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _limit(memory: int, cpu: int) -> None:
    for kind, most in (
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (least, least))


if __name__ == "__main__":
    main()
