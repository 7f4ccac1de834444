"""Workers are killed with SIGKILL before, during and after the effect of each handler."""

from pathlib import Path

import pytest

from tests.handlers.crashes import STEPS, Victim, finished_after_crash
from tests.handlers.http_sink import Answer, http_sink
from windlass import State

pytestmark = pytest.mark.system


@pytest.mark.parametrize("step", STEPS)
async def test_a_webhook_is_delivered_under_one_id(step: str, tmp_path: Path) -> None:
    victim = Victim()
    first = Answer(before=victim.kill if step == "during" else lambda: None)
    with http_sink(first, Answer()) as sink:
        payload = {"endpoint": sink.url, "body": {"n": 1}}
        task = await finished_after_crash(tmp_path, {"webhooks": {}}, payload, step, victim)

    assert (task.state, task.attempt) == (State.COMPLETED, 2)
    assert len(sink.received) == (1 if step == "before" else 2)
    assert {one.headers["webhook-id"] for one in sink.received} == {task.id}
