"""Metrics of several processes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

COUNT = """
import asyncio, sys
from pathlib import Path
from windlass._observe.process_metrics import share_metrics
if len(sys.argv) > 1:
    share_metrics(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[2]))
from prometheus_client import Counter
from windlass import App
Counter("foreign", "of the program").inc()
app = App("memory://")
app.metrics().meter.rate_limited("tasks")
print(asyncio.run(app.metrics().exposition())[0].decode())
"""


def counted(*arguments: str, **environment: str) -> str:
    """What a process exports that has counted one refusal."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", COUNT, *arguments],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    ).stdout


def test_each_exports_the_sum_and_a_replacement_goes_on(tmp_path: Path) -> None:
    counted(str(tmp_path), "1")
    counted(str(tmp_path), "2")
    text = counted(str(tmp_path), "1")

    assert 'windlass_rate_limited_total{rate="tasks"} 3.0' in text
    assert "windlass_build_info" in text
    assert 'process_cpu_seconds_total{process="1"}' in text
    assert "foreign" not in text
    assert len([*tmp_path.glob("counter_*.db")]) == 2


def test_the_mode_of_the_program_is_kept(tmp_path: Path) -> None:
    for number in (1.0, 2.0):
        text = counted(PROMETHEUS_MULTIPROC_DIR=str(tmp_path))
        assert f'windlass_rate_limited_total{{rate="tasks"}} {number}' in text
    assert "process_cpu_seconds_total" not in text


def test_one_process_is_as_before() -> None:
    text = counted()
    assert 'windlass_rate_limited_total{rate="tasks"} 1.0' in text
    assert "\nprocess_cpu_seconds_total " in text
