"""A keeper that knows no program: `python -m tests.system.keep '{"lease": 2}'`. Says `ready` when it is."""

import asyncio
import json
import signal
import sys
from contextlib import suppress
from datetime import timedelta

from tests.system.mistakes import distort
from tests.system.program import STORE, WORKER
from tests.system.work import log_to_stderr, say_ready
from windlass import App


async def main(lease: float, mistake: str = "") -> None:
    app = App(STORE)
    if mistake:
        distort(app, mistake)
    await app.open()
    keeping = asyncio.ensure_future(app.keeper(name=WORKER, lease=timedelta(seconds=lease)).run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, keeping.cancel)
    say_ready()
    with suppress(asyncio.CancelledError):
        await keeping
    await app.close()


if __name__ == "__main__":
    log_to_stderr()
    asyncio.run(main(**json.loads(sys.argv[1])))
