"""The files that docs/deployment.md shows are well formed, and agree with what windlass serves."""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.blocks import DOCS, blocks_of
from windlass import WorkerSettings
from windlass._cli.run.health import LIVE_SECONDS

FILES = {block.info: block.text for block in blocks_of(DOCS / "deployment.md") if block.info}
UNITS = [name for name in FILES if name.endswith(".service")]
GRACE = WorkerSettings().grace.total_seconds()
PROBES = {"worker": ("/ready", "/live"), "serve": ("/readyz", "/healthz")}


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(FILES[name])
    return parser


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_waits_longer_than_the_grace(name: str) -> None:
    service = unit(name)["Service"]

    assert int(service["TimeoutStopSec"]) > GRACE + 5
    assert service["KillMode"] == "mixed"


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_waits_for_notifications(name: str) -> None:
    """tests/shells/cli/test_probes.py shows that these commands send them."""
    service = unit(name)["Service"]

    assert service["Type"] == "notify"
    assert service["ExecStart"].split()[1] in {"worker", "serve"}
    assert int(service["WatchdogSec"]) > LIVE_SECONDS


@pytest.mark.parametrize("name", UNITS)
def test_systemd_knows_every_key_of_a_unit(name: str, tmp_path: Path) -> None:
    if (analyze := shutil.which("systemd-analyze")) is None:
        assert {*unit(name)} == {"DEFAULT", "Unit", "Service", "Install"}
        return
    file = tmp_path / name
    file.write_text(FILES[name].replace("/srv/shop/.venv/bin/windlass", sys.executable))
    done = subprocess.run(
        [analyze, "verify", "--man=no", str(file)],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )

    assert [line for line in done.stderr.splitlines() if name in line] == []


def test_compose_waits_longer_than_the_grace() -> None:
    services = yaml.safe_load(FILES["compose.yaml"])["services"]

    for name in ("worker", "server"):
        assert int(services[name]["stop_grace_period"].removesuffix("s")) > GRACE + 5
    worker = services["worker"]
    port = worker["command"][worker["command"].index("--health") + 1]
    assert f":{port}/ready" in worker["healthcheck"]["test"][-1]


def deployments() -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(FILES["kubernetes.yaml"])
    return [
        document["spec"]["template"]["spec"] for document in documents if document["kind"] == "Deployment"
    ]


@pytest.mark.parametrize("pod", deployments(), ids=lambda pod: pod["containers"][0]["name"])
def test_probes_ask_for_what_is_served(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    command = container["command"]
    ready, live = PROBES[command[1]]
    [port] = container["ports"]

    assert pod["terminationGracePeriodSeconds"] > GRACE + 5
    assert container["readinessProbe"]["httpGet"] == {"path": ready, "port": port["name"]}
    assert container["livenessProbe"]["httpGet"] == {"path": live, "port": port["name"]}
    if "--health" in command:
        assert command[command.index("--health") + 1] == f"0.0.0.0:{port['containerPort']}"
