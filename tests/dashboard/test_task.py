"""The screen of one task, as people use it."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from playwright.sync_api import expect

from tests.dashboard.browser import Run, Tab
from windlass import INJECTED, App, Context, WorkerSettings

HOSTILE = "<img src=x onerror=alert(1)>"


async def begin(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    return asyncio.create_task(work)


def test_watch_a_task_cancel_it_edit_and_replay(app: App, tab: Tab, run: Run) -> None:
    @app.task(name="work", queue="slow")
    async def work(text: str, *, ctx: Context = INJECTED) -> None:
        ctx.progress(0.25, f"a quarter of {HOSTILE}")
        await asyncio.Event().wait()

    page = tab.page
    made = run(work.aenqueue(text=HOSTILE))
    page.goto(f"{page.url}tasks/{made.id}")
    tab.is_live()
    expect(page.get_by_role("img", name="States of this task: ready")).to_be_visible()

    worker = app.worker(WorkerSettings(queues=("slow",), drain=True))
    working = run(begin(worker.run()))
    expect(page.get_by_text(f"a quarter of {HOSTILE}")).to_be_visible()
    expect(page.get_by_role("img", name="States of this task: ready, then running")).to_be_visible()

    page.get_by_role("button", name="Cancel…").click()
    page.get_by_label("Why").fill("a test")
    page.get_by_role("button", name="Cancel the task").click()
    expect(page.get_by_text("The task is asked to stop.")).to_be_visible()
    run(asyncio.wait_for(working, 30))
    expect(page.get_by_role("img", name="then cancelled")).to_be_visible()

    page.get_by_role("link", name="Edit and replay…").click()
    text = page.get_by_label("Payload")
    expect(text).to_have_value('{\n  "text": "' + HOSTILE + '"\n}')
    text.fill('{"text":')
    tab.expected.append("422")
    page.get_by_role("button", name="Replay with this payload").click()
    expect(page.get_by_role("alert")).to_contain_text("not valid JSON")
    expect(text).to_have_value('{"text":')
    text.fill('{"text": "better"}')
    page.get_by_role("button", name="Replay with this payload").click()
    expect(page.get_by_text("The task is replayed with the new payload.")).to_be_visible()
    expect(page.get_by_label("Payload")).to_contain_text("better")
