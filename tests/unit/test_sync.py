"""The blocking twins of the client classes: up to date, and complete."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from windlass import Client, Handle, Operator, SyncClient, SyncHandle, SyncOperator
from windlass._client.alerts import Alerts
from windlass._client.keys import Keys
from windlass._client.limits import Limits
from windlass._client.quotas import Quotas
from windlass._client.schedules import Schedules
from windlass._client.sync.records import SyncAlerts, SyncKeys, SyncLimits, SyncQuotas, SyncSchedules

SCRIPT = Path(__file__).parents[2] / "scripts" / "sync"
INTERNAL = {"changed", "enqueue_tasks_sync", "export_sync", "make", "put"}
TWINS = [
    (Client, SyncClient),
    (Handle, SyncHandle),
    (Operator, SyncOperator),
    (Alerts, SyncAlerts),
    (Keys, SyncKeys),
    (Limits, SyncLimits),
    (Quotas, SyncQuotas),
    (Schedules, SyncSchedules),
]


def public(kind: type) -> dict[str, Any]:
    return {
        name: member for name, member in vars(kind).items() if not name.startswith("_") and callable(member)
    }


def test_what_is_generated_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--check"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("kind", "twin"), TWINS)
def test_a_twin_has_the_same_methods_with_the_same_parameters(kind: type, twin: type) -> None:
    methods = {name: method for name, method in public(kind).items() if name not in INTERNAL}

    assert public(twin).keys() == methods.keys()
    for name, method in methods.items():
        blocking = public(twin)[name]
        assert inspect.signature(blocking).parameters == inspect.signature(method).parameters, name
        assert not inspect.iscoroutinefunction(blocking), name
        assert not inspect.isasyncgenfunction(blocking), name
        assert blocking.__doc__, name
