"""`windlass endpoints`: list disabled ones, and enable them."""

import asyncio

from windlass import App
from windlass._ids import new_id

from .conftest import Run


async def disable(task_id: str) -> str:
    app = App("sqlite:///windlass.db")
    made = await app.operator.endpoints.disable("https://example.org/T0K3N", tenant="acme", task_id=task_id)
    await app.close()
    return made.name


def test_a_disabled_endpoint_is_listed_and_enabled(run: Run) -> None:
    run("migrate")
    assert "no endpoint is disabled" in run("endpoints", "list").err
    task = new_id()
    id = asyncio.run(disable(task))
    row = run("endpoints", "list", "--json").row
    header, line = run("endpoints", "list").out.splitlines()

    assert {name: row[name] for name in ("id", "endpoint", "tenant", "task_id")} == {
        "id": id,
        "endpoint": "https://example.org/\u2026",
        "tenant": "acme",
        "task_id": task,
    }
    assert header.split() == ["id", "endpoint", "tenant", "disabled", "task"]
    assert line.split()[:3] == [id, "https://example.org/\u2026", "acme"]
    assert run("endpoints", "enable", id, "--why", "it is back").out == f"enabled {id}\n"
    assert run("endpoints", "enable", id).code == 3
    assert ("it is back", f"endpoint {id}") in [
        (one["why"], one["subject"]) for one in run("audit", "--json").rows
    ]
