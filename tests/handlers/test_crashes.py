"""Workers are killed with SIGKILL before, during and after the effect of each handler."""

import json
from pathlib import Path

import pytest

from tests.handlers.crashes import STEPS, Victim, finished_after_crash
from tests.handlers.http_sink import Answer, Received, http_sink
from tests.handlers.pictures import picture
from tests.handlers.smtp_server import mail_server
from tests.handlers.test_email_apis import Mailgun
from windlass import State

pytestmark = pytest.mark.system

EMAIL = {"to": "ada@example.org", "subject": "hello", "text": "how are you?"}


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


@pytest.mark.parametrize("step", STEPS)
async def test_an_email_is_sent_again_unless_told_otherwise(step: str, tmp_path: Path) -> None:
    victim = Victim()
    with mail_server() as server:
        server.before_reply = victim.kill if step == "during" else lambda: None
        table = {"sender": "shop@example.org", "smtp": server.url, "starttls": "never"}
        task = await finished_after_crash(tmp_path, {"email": table}, EMAIL, step, victim)

    assert (task.state, task.attempt) == (State.COMPLETED, 2)
    assert len(server.accepted) == (1 if step == "before" else 2)
    assert len({one.message["Message-ID"] for one in server.accepted}) == 1


@pytest.mark.parametrize("step", STEPS)
async def test_an_email_is_sent_at_most_once_if_told_so(step: str, tmp_path: Path) -> None:
    victim = Victim()
    with mail_server() as server:
        server.before_reply = victim.kill if step == "during" else lambda: None
        table = {"sender": "shop@example.org", "smtp": server.url, "starttls": "never", "when_unsure": "stop"}
        task = await finished_after_crash(tmp_path, {"email": table}, EMAIL, step, victim)

    assert (task.state, len(server.accepted)) == (State.DEAD, 0 if step == "before" else 1)


@pytest.mark.parametrize("step", STEPS)
async def test_mailgun_sends_once(step: str, tmp_path: Path) -> None:
    victim = Victim()
    provider = Mailgun(lost=0)
    with http_sink(route=provider) as api:

        def answer(request: Received) -> Answer:
            answer = provider(request)
            answer.before = victim.kill if step == "during" else answer.before
            return answer

        api.route = answer
        table = {"sender": "a@example.org", "mailgun": "k", "domain": "example.org", "base_url": api.url}
        task = await finished_after_crash(tmp_path, {"email": table}, EMAIL, step, victim)

    assert (task.state, task.attempt, len(provider.accepted)) == (State.COMPLETED, 2, 1)


@pytest.mark.parametrize("step", STEPS)
async def test_images_are_stored_under_one_name(step: str, tmp_path: Path) -> None:
    victim = Victim()
    before = victim.kill if step == "during" else lambda: None
    first = Answer(200, picture(), {"Content-Type": "image/png"}, before)
    with http_sink(first, Answer(200, picture(), {"Content-Type": "image/png"})) as web:
        payload = {"url": web.url, "sizes": [{"width": 40}, {"width": 80}]}
        table = {"storage": str(tmp_path / "files")}
        task = await finished_after_crash(tmp_path, {"images": table}, payload, step, victim)

    assert (task.state, task.attempt) == (State.COMPLETED, 2)
    stored = {str(one.relative_to(tmp_path / "files")) for one in stored_files(tmp_path / "files")}
    assert stored == {one["file"] for one in json.loads(task.result or b"")}


def stored_files(folder: Path) -> list[Path]:
    return [one for one in folder.rglob("*") if one.is_file()]


@pytest.mark.full
@pytest.mark.parametrize("step", ["before", "after"])
async def test_a_report_is_stored_under_one_name(step: str, tmp_path: Path) -> None:
    table = {"storage": str(tmp_path / "files")}
    payload = {"rows": [{"rope": 7}], "date": "2026-11-15"}
    task = await finished_after_crash(tmp_path, {"reports": table}, payload, step, Victim())

    assert (task.state, task.attempt) == (State.COMPLETED, 2)
    stored = [str(one.relative_to(tmp_path / "files")) for one in stored_files(tmp_path / "files")]
    assert stored == [json.loads(task.result or b"")["file"]]


@pytest.mark.full
@pytest.mark.parametrize("step", STEPS)
async def test_a_request_has_one_idempotency_key(step: str, tmp_path: Path) -> None:
    victim = Victim()
    first = Answer(before=victim.kill if step == "during" else lambda: None)
    with http_sink(first, Answer()) as sink:
        payload = {"url": sink.url, "method": "POST", "body": {}}
        task = await finished_after_crash(tmp_path, {"requests": {}}, payload, step, victim)

    assert task.state is State.COMPLETED
    assert len(sink.received) == (1 if step == "before" else 2)
    assert len({one.headers["Idempotency-Key"] for one in sink.received}) == 1
