"""Workers are killed with SIGKILL before, during and after the effect of each handler; replies are lost."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS
from tests.handlers.crashes import STEPS, Moment, finished_after_crash
from tests.handlers.effects import CASES, Case, sendgrid
from tests.loops.workers import eventually

SAMPLE = {
    ("deliver_webhook", "during"),
    ("send_email by SMTP or SendGrid", "during"),
    ("the same, when_unsure = stop", "after"),
    ("send_email by Mailgun", "during"),
    ("generate_report", "during"),
    ("resize_image", "after"),
    ("http_request", "before"),
    ("scrape_url", "during"),
}
"""What is not only in the full run."""


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "shop")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "rope")


@pytest.mark.parametrize(
    ("name", "step"),
    [
        pytest.param(
            name,
            step,
            marks=[pytest.mark.system, *([] if (name, step) in SAMPLE else [pytest.mark.full])],
        )
        for name in CASES
        for step in STEPS
    ],
)
async def test_the_promised_number_of_effects(name: str, step: str, tmp_path: Path) -> None:
    await check(CASES[name], step, tmp_path)


@pytest.mark.full
@pytest.mark.system
@pytest.mark.parametrize("step", STEPS)
async def test_sendgrid_promises_what_smtp_does(step: str, tmp_path: Path) -> None:
    await check(Case("email", sendgrid), step, tmp_path)


async def check(case: Case, step: str, folder: Path) -> None:
    moment = Moment(step)
    with case.world(moment, folder) as world:
        task = await finished_after_crash(folder, {case.table: world.table}, world.payload, moment)
        effects = world.effects()

    assert (task.state, len(effects)) == (case.ends, case.promised(step))
    if step != "lost":
        assert task.attempt == 2
    if case.table != "commands":
        assert len(set(effects)) <= 1, "an effect that is repeated must be recognisable as the same"
    elif step == "during":
        await eventually(lambda: not is_running(effects[0]))


def is_running(process: str) -> bool:
    """Whether a process is there, and has not ended without being waited for."""
    status = Path("/proc", process, "stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_the_docs_name_the_promised_numbers() -> None:
    page = (DOCS / "handlers.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    documented = {
        re.sub('[`"]', "", name): tuple(numbers[:4])
        for name, *numbers in (row for row in rows if len(row) == 6)
    }
    promised = {name: tuple(str(case.promised(step)) for step in STEPS) for name, case in CASES.items()}

    assert {name: documented.get(name) for name in promised} == promised
