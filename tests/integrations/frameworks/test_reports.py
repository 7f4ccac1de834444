"""Logs, tracebacks, hooks and Sentry hold in web applications with a worker inside, beside their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.examples import sample
from tests.integrations.sentry_sink import sentry_sink

pytestmark = pytest.mark.system


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("framework", sample(["fastapi"], ["litestar", "flask"]))
def test_a_failure_is_told_by_all_that_tells(framework: str, tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    with sentry_sink() as sink:
        done = subprocess.run(
            [sys.executable, "-m", f"tests.integrations.frameworks.{framework}_program"],
            cwd=tmp_path, env=os.environ | {"SINK": sink.dsn, "NO_PROXY": "127.0.0.1", "PYTHONPATH": path},
            capture_output=True, text=True, timeout=50, check=False,
        )  # fmt: skip
        events = sink.items("event")
    assert done.returncode == 0, done.stderr

    told = lines(done.stdout)
    assert {"hook": "shop.charge", "error": "ValueError"} in told
    assert {"hook": "shop.print", "error": "OSError"} in told
    assert {"around": "shop.charge"} in told
    assert {"task": "/charge", "state": "dead"} in told
    assert {"request": 500} in told

    logged = lines(done.stderr)
    (warning,) = [one for one in logged if "charging order" in one["message"]]
    assert warning["task_type"] == "shop.charge"
    for task_type, place in (("shop.charge", "in charge"), ("shop.print", "in print_label")):
        (buried,) = [one for one in logged if one.get("event") == "buried" and one["task_type"] == task_type]
        assert place in buried["exception"]

    reported = {event["exception"]["values"][-1]["type"]: event for event in events}
    assert sorted(reported) == ["KeyError", "OSError", "ValueError"]
    assert len(events) == 3  # each once
    assert reported["ValueError"]["tags"]["task_type"] == "shop.charge"
    assert reported["OSError"]["tags"]["task_type"] == "shop.print"
    assert "task_type" not in reported["KeyError"].get("tags", {})
