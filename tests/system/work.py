"""A worker process: `python -m tests.system.work '{"slots": 8}'`. Says `ready` on stdout when it is."""

import asyncio
import json
import logging
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.system import program, programs
from tests.system.full import watch_for_full
from tests.system.mistakes import distort
from tests.system.program import FOLDER, STORE, WORKER
from windlass import WorkerSettings

DURATIONS = ("lease", "heartbeat", "grace", "poll")


def log_to_stderr() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("windlass.keeper").setLevel(logging.INFO)


def main(options: dict[str, Any]) -> None:
    log_to_stderr()
    app = programs.program(options.pop("program"), STORE).app if "program" in options else program.app
    if options.pop("may_fill", False):
        watch_for_full(FOLDER)
    if mistake := options.pop("mistake", None):
        distort(app, mistake)
    for name in DURATIONS:
        if name in options:
            options[name] = timedelta(seconds=options[name])
    options["queues"] = tuple(options.get("queues", ()))
    settings = WorkerSettings(name=WORKER, **options)
    asyncio.run(app.worker(settings).run(signals=True, ready=say_ready))


def say_ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


if __name__ == "__main__":
    Path(FOLDER / f"pid-{WORKER}").write_text(str(os.getpid()))
    main(json.loads(sys.argv[1]))
