"""Texts that SQL, Lua, subjects or templates could take for code are kept and looked for as they are."""

from collections import Counter

from tests.loops.workers import drained, tasks
from windlass import App, By, Filter, State
from windlass._store.protocol import Store
from windlass.errors import InvalidOption

TEXTS = (
    *("'; DROP TABLE task; --", '"; DELETE FROM windlass.task; --', "' OR '1'='1", "\\'; --", "/*", "--"),
    *("$1", ":id", "%(id)s", "%s", "?", "{where}", "{{id}}", "%", "_", "$$; SELECT pg_sleep(9); $$"),
    *("redis.call('FLUSHALL')", "]] return 1 --", "*", "a*", "[a-z]", ">", "a.>", "EVAL a 0", "a DEL b"),
)


async def test_a_text_is_never_code(store: Store) -> None:
    app = App(store)

    @app.task(name="echo", max_attempts=1)
    async def echo(text: str) -> str:
        raise ValueError(text if text in TEXTS[::2] else "another")

    @app.task(name="keep")
    async def keep(text: str) -> str:
        return text

    kept = {text: await app.client.send("keep", {"text": text}, idempotency_key=text) for text in TEXTS}
    failed = {text: await app.client.send("echo", {"text": text}) for text in TEXTS}
    named = 0
    for text in TEXTS:
        try:
            handle = await app.client.send("keep", {"text": ""}, queue=text, tenant=text)
        except InvalidOption:
            continue
        named += 1
        for where in (Filter(queues=(text,)), Filter(tenants=(text,)), Filter(ids=(handle.id,))):
            assert [one.id for one in (await app.operator.find(where)).items] == [handle.id], where
        assert await app.operator.cancel(Filter(queues=(text,)), by=By(who="ann")) == 1
    assert named
    await drained(app, queues=("default",))

    for text, handle in kept.items():
        assert await handle.result(timeout=5) == text
        (found,) = (await app.operator.find(Filter(idempotency_key=text))).items
        assert found.id == handle.id
    for text, handle in failed.items():
        found = (await app.operator.find(Filter(error=text, states=(State.DEAD,)))).items
        assert (handle.id in [one.id for one in found]) == (text in TEXTS[::2])
        assert all(text in f"{one.error.type} {one.error.message}" for one in found if one.error)
    states = Counter(one.state for one in await tasks(app))
    assert states == {State.COMPLETED: len(TEXTS), State.DEAD: len(TEXTS), State.CANCELLED: named}
