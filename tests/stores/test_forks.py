"""A forked child leaves its parent's connections alone, however it ends, and opens its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.api import ApiServer
from tests.servers.nats import Nats
from tests.servers.owners import Owners
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.stores.postgres.conftest import new_schema
from windlass._stores.memory import MemoryStore

LIMIT_SECONDS = 50

PARENT = """
import asyncio, contextlib, gc, json, multiprocessing, os, signal, sys
from windlass import App
from windlass.errors import NotSupported

app = App(sys.argv[1])
loop = asyncio.new_event_loop()
woken = asyncio.Event()

@app.task(queue="mail")
def note(n: int) -> None: ...

async def listen():
    async for _ in app.store.wakes(["mail"]):
        woken.set()

async def use_on_the_loop():
    woken.clear()
    async with asyncio.timeout(10):
        await asyncio.gather(*(note.aenqueue(n=n) for n in range(4)))
        await woken.wait()
        with contextlib.suppress(NotSupported):
            async with app.store.transaction():
                pass

def use():
    loop.run_until_complete(use_on_the_loop())
    note.enqueue(n=4)
    with contextlib.suppress(NotSupported), app.store.transaction():
        pass

def sockets():
    seen = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            seen.add(os.readlink(f"/proc/self/fd/{name}"))
    return {one for one in seen if one.startswith("socket:")}

def fork(child):
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a child that hangs is not left behind
        child()
        os._exit(1)
    return pid

def collect():
    global app, note
    del app, note
    gc.collect()
    os._exit(0)

def work():
    for n in range(20):
        assert note.enqueue(n=n).created
    app.sync_operator.count()
    sys.exit()

def check(ending, status):
    try:
        use()
    except Exception as error:
        results[ending] = repr(error)
    else:
        lost = before - sockets()
        results[ending] = f"lost {len(lost)} of {len(before)} sockets" if lost else "kept"
    if status:
        results[ending] = f"the child ended with status {status}"
    if results[ending] != "kept":
        finish()

def finish():
    print(json.dumps(results), flush=True)
    os._exit(0)

listening = loop.create_task(listen())
use()
use()
before = sockets()
results = {}
for name, child in {"at once": lambda: os._exit(0), "collects": collect, "exits": sys.exit}.items():
    check(name, os.waitpid(fork(child), 0)[1])

pid = fork(work)
use()
check("works", os.waitpid(pid, 0)[1])

async def run_a_process():
    process = multiprocessing.get_context("fork").Process(target=gc.collect)
    process.start()
    await asyncio.to_thread(process.join)
    return process.exitcode

check("multiprocessing", loop.run_until_complete(run_a_process()))
finish()
"""


@pytest.fixture(params=["sqlite", "postgres", "valkey", "jetstream", "http"])
def url(request: pytest.FixtureRequest, folder: Path) -> Iterator[str]:
    """The URL of an empty store."""
    match request.param:
        case "sqlite":
            yield f"sqlite:///{folder}/windlass.db"
        case "postgres":
            postgres: Postgres = request.getfixturevalue("postgres_newest")
            yield new_schema(postgres.url)
        case "valkey":
            valkey: Redis = request.getfixturevalue("valkey")
            yield valkey.new_url()
        case "jetstream":
            nats: Nats = request.getfixturevalue("nats")
            owners: Owners = request.getfixturevalue("owners")
            url = nats.new_url()
            owners.start(url, folder)
            yield url
            owners.clear()
        case _:
            api: ApiServer = request.getfixturevalue("api")
            with api.serving() as serve:
                yield serve(MemoryStore())


def test_a_forked_child_leaves_its_parent_s_connections_alone(url: str) -> None:
    """They share an epoll instance, too: of what the child removes from it the parent hears no more."""
    done = subprocess.run(
        [sys.executable, "-c", PARENT, url], stdout=subprocess.PIPE, timeout=LIMIT_SECONDS, check=True
    )

    endings = ("at once", "collects", "exits", "works", "multiprocessing")
    assert json.loads(done.stdout) == dict.fromkeys(endings, "kept")
