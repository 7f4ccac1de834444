"""Logging of `windlass worker`: the program's set-up is kept, a given format wins, lines name their task."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.shells.cli.processes import Start

pytestmark = pytest.mark.system

APP = """
import logging
import logging.config

from windlass import App

{set_up}

app = App("sqlite:///windlass.db")
log = logging.getLogger("shop.images")


@app.task(name="shop.resize", max_attempts=1)
async def resize(n: int) -> None:
    log.info("resizing %d", n)
    raise ValueError("no picture")


@app.task(name="shop.pay", max_attempts=1)
def pay(n: int = 0, password: str = "hunter-7") -> None:
    log.info("paying with %s", password, extra={{"told": password}})


@app.task(name="shop.convert", process=True)
def convert(n: int) -> None:
    log.info("converting %d", n)
    print(f"printed {{n}}\\n", end="")  # in one write, so that no line gets between
"""
BASIC = 'logging.basicConfig(level="INFO", format="MINE %(levelname)s %(name)s %(message)s")'
DICT = """
logging.getLogger("windlass.worker")
logging.config.dictConfig({
    "version": 1,
    "formatters": {"own": {"format": "MINE %(task_type)s %(task_id)s %(message)s"}},
    "filters": {"task": {"()": "windlass.logs.TaskFilter"}},
    "handlers": {"own": {"class": "logging.StreamHandler", "formatter": "own", "filters": ["task"]}},
    "root": {"level": "INFO", "handlers": ["own"]},
})
"""
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error) +([\w.]+): (.*)")

Logged = Callable[..., list[str]]


@pytest.fixture
def logged(start: Start, folder: Path) -> Logged:
    """Run the tasks with a worker whose module sets up logging in this way; return its log lines."""

    def run(
        set_up: str,
        *options: str,
        tasks: tuple[str, ...] = ("resize", "convert"),
        payload: str = '{"n": 7}',
    ) -> list[str]:
        (folder / "shop.py").write_text(APP.format(set_up=set_up))
        for name in tasks:
            enqueue = start("enqueue", f"shop.{name}", payload, "--app", "shop:app")
            enqueue.communicate(timeout=30)
            assert enqueue.returncode == 0
        worker = start("worker", "shop:app", "--drain", *options)
        _, err = worker.communicate(timeout=30)
        assert worker.returncode == 0, err
        lines: list[str] = err.splitlines()
        return lines

    return run


def find(lines: list[str], words: str) -> str:
    found = [line for line in lines if words in line]
    assert len(found) == 1, (words, lines)
    return found[0]


@pytest.mark.parametrize("set_up", ["", 'logging.info("a call that installs a handler by itself")'])
def test_a_line_has_date_level_logger_and_the_task_of_the_handler(logged: Logged, set_up: str) -> None:
    lines = logged(set_up)

    for words, task_type in (("resizing 7", "shop.resize"), ("converting 7", "shop.convert")):
        found = LINE.fullmatch(find(lines, words))
        assert found, lines
        assert found[2] == "shop.images"
        assert re.fullmatch(rf"\[{task_type} [0-9a-f-]{{36}}\] {words}", found[3])
    buried = LINE.fullmatch(find(lines, "buried"))
    assert buried
    assert buried[3].startswith("shop.resize ")
    assert find(lines, "Traceback")
    assert "ValueError: no picture" in lines
    assert find(lines, "printed 7") == "printed 7"


def test_basic_config_of_the_program_is_kept(logged: Logged) -> None:
    lines = logged(BASIC)

    assert find(lines, "resizing 7") == "MINE INFO shop.images resizing 7"
    assert find(lines, "converting 7") == "MINE INFO shop.images converting 7"
    assert find(lines, "is ready").startswith("MINE INFO windlass.worker ")


def test_dict_config_of_the_program_is_kept_and_can_name_the_task(logged: Logged) -> None:
    lines = logged(DICT)

    assert re.fullmatch(r"MINE shop.resize [0-9a-f-]{36} resizing 7", find(lines, "resizing 7"))
    assert re.fullmatch(r"MINE shop.convert [0-9a-f-]{36} converting 7", find(lines, "converting 7"))
    assert find(lines, "is ready").startswith("MINE   worker ")  # though dictConfig disables what exists


OWN_LOGGER = """
own = logging.StreamHandler()
own.setFormatter(logging.Formatter("OWN %(message)s %(told)s"))
logging.getLogger("shop.images").addHandler(own)
"""


@pytest.mark.parametrize("set_up", ["", BASIC, DICT, OWN_LOGGER])
@pytest.mark.parametrize("options", [(), ("--log-format", "json")])
def test_secrets_are_masked_whoever_has_set_up_logging(
    logged: Logged, set_up: str, options: tuple[str, ...]
) -> None:
    lines = logged(set_up, *options, tasks=("pay",), payload='{"password": "hunter-7"}')

    assert [line for line in lines if "paying with [secret]" in line]
    assert not [line for line in lines if "hunter-7" in line]


@pytest.mark.parametrize("set_up", [BASIC, DICT])
def test_a_format_that_is_given_wins_and_says_so(logged: Logged, set_up: str) -> None:
    lines = [json.loads(line) for line in logged(set_up, "--log-format", "json", tasks=("resize",))]

    assert "the log format 'json' was given" in lines[0]["message"]
    resizing = next(line for line in lines if line["message"] == "resizing 7")
    assert (resizing["logger"], resizing["task_type"], resizing["level"]) == (
        "shop.images",
        "shop.resize",
        "info",
    )
    buried = next(line for line in lines if line.get("event") == "buried")
    assert "ValueError: no picture" in buried["exception"]


def test_a_level_that_is_given_wins(logged: Logged) -> None:
    lines = logged(BASIC, "--log-level", "warning", tasks=("resize",))

    assert not [line for line in lines if "resizing" in line]
    assert find(lines, "buried").startswith("MINE ERROR windlass.events ")
