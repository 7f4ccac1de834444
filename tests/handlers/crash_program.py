"""A worker that kills itself before or after the handler of the first task: argv are folder, tables, when."""

import functools
import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.handlers.crashes import WORKER_FILE
from tests.handlers.runs import LOOPBACK
from windlass import App, WorkerSettings
from windlass.handlers.selection import include_configured

folder, tables, when = sys.argv[1:]


def crashing(handler: Any) -> Any:
    @functools.wraps(handler)
    async def wrapped(**arguments: Any) -> Any:
        if when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = await handler(**arguments)
        if when == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


Path(folder, WORKER_FILE).write_text(str(os.getpid()))
app = App(f"sqlite:///{folder}/windlass.db", allow_addresses=LOOPBACK)
include_configured(app, json.loads(tables))
for spec in app.types.values():
    spec.handler = crashing(spec.handler)
app.run_worker(WorkerSettings(lease=timedelta(seconds=1), heartbeat=timedelta(seconds=0.3)))
