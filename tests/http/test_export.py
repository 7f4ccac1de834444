"""Export over HTTP: NDJSON in the order of ends, within the bounds of the key."""

import json
from datetime import timedelta

import pytest

from tests.http.api_client import Api
from tests.http.problem import problem
from windlass._client.tasks import export


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "SETTLING", timedelta(0))


async def test_ended_tasks_are_lines_with_their_attempts(api_of: Api) -> None:
    dead = await api_of.die(queue="mail")
    await api_of.enqueue(queue="mail")
    gone = await api_of.enqueue(payload={"password": "hunter2"})
    await api_of.good("DELETE", f"/tasks/{gone}")

    response = await api_of("GET", "/export")

    lines = [json.loads(line) for line in response.text.splitlines()]
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert [line["id"] for line in lines] == [dead, gone]
    assert [len(line["attempts"]) for line in lines] == [1, 0]
    assert "hunter2" not in response.text
    after = f"{lines[0]['finished_at']},{dead}"
    rest = await api_of("GET", f"/export?after={after}")
    assert [json.loads(line)["id"] for line in rest.text.splitlines()] == [gone]
    assert (await api_of("GET", "/export?queue=mail&state=cancelled")).text == ""


async def test_what_is_no_cursor_is_refused(api_of: Api) -> None:
    problem(await api_of("GET", "/export?after=x"), 422, "invalid-option")


async def test_secrets_are_exported_with_reveal_and_a_line_for_each_task(api_of: Api) -> None:
    gone = await api_of.enqueue(payload={"password": "hunter2"})
    await api_of.good("DELETE", f"/tasks/{gone}")

    assert "hunter2" in (await api_of("GET", "/export?reveal=true")).text

    lines = (await api_of.good("GET", "/audit"))["items"]
    assert [line["task_id"] for line in lines if line["action"] == "reveal"] == [gone]
