"""The graph of a chain or group: who follows whom, in layers."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.samples import running
from windlass import RESULT, App, Filter, WorkerSettings, chain
from windlass._dashboard.tasks.chain_graph import (
    MAX_NODES,
    Graph,
    Node,
    chain_graph,
    draw_graph,
    layers_of,
)
from windlass._documents.tasks import task_document
from windlass._stores.memory import MemoryStore


async def graph_of(app: App, root: str) -> Graph:
    found = await app.operator.find(Filter(root=root))
    return chain_graph([task_document(task) for task in found.items])


def types(graph: Graph) -> list[list[str]]:
    return [[f"{graph.nodes[id].type} {graph.nodes[id].state}" for id in row] for row in layers_of(graph)]


async def test_the_last_task_of_a_group_follows_the_ends_of_its_chains() -> None:
    app = App(MemoryStore())

    @app.task(name="fetch")
    async def fetch(url: str) -> str:
        return url

    @app.task(name="count")
    async def count(text: str) -> int:
        return len(text)

    @app.task(name="sum")
    async def total(found: list[object]) -> int:
        return len(found)

    await app.open()
    steps = [chain(fetch.step(url="x"), count.step(text=RESULT)), fetch.step(url="y")]
    first, *_ = await app.client.enqueue_group(steps, total.step(found=RESULT))
    before = await graph_of(app, first.id)
    assert types(before) == [["fetch ready", "fetch ready"], ["count planned"], ["sum waiting"]]
    assert before.done == 0
    await app.worker(WorkerSettings(drain=True)).run()
    after = await graph_of(app, first.id)
    assert types(after) == [["fetch completed", "fetch completed"], ["count completed"], ["sum completed"]]
    assert after.edges == before.edges
    assert len(after.edges) == 3
    assert after.done == 4
    await app.close()


async def test_a_step_on_failure_is_drawn_once_it_is_a_task() -> None:
    app = App(MemoryStore())

    @app.task(name="charge", max_attempts=1)
    async def charge(amount: int) -> None:
        assert amount < 10

    @app.task(name="refund")
    async def refund() -> None: ...

    fine = await charge.using(on_failure=refund.step()).aenqueue(amount=1)
    dead = await charge.using(on_failure=refund.step()).aenqueue(amount=10)
    assert types(await graph_of(app, dead.id)) == [["charge ready"]]
    await app.worker(WorkerSettings(drain=True)).run()

    assert types(await graph_of(app, fine.id)) == [["charge completed"]]
    assert types(await graph_of(app, dead.id)) == [["charge dead"], ["refund completed"]]
    await app.close()


def test_a_large_group_is_cut_and_says_so() -> None:
    ids = [f"0199c3a2-7d10-7abc-8def-{number:012x}" for number in range(MAX_NODES + 50)]
    tasks = [task_document(running(id=id, root=ids[0])) for id in ids]
    graph = chain_graph(tasks)
    assert graph.cut
    assert len(graph.nodes) == MAX_NODES
    assert not chain_graph(tasks[:3]).cut


@pytest.mark.parametrize("nodes", ["a", "ab", "abc"])
def test_damaged_tasks_that_all_follow_each_other_are_drawn(nodes: str) -> None:
    loop = frozenset(zip(nodes, nodes[1:] + nodes[0], strict=True))
    graph = Graph(nodes={id: Node(id=id, type="t", state="ready") for id in nodes}, edges=loop)

    assert sorted(id for row in layers_of(graph) for id in row) == [*nodes]
    assert draw_graph(graph, "../").count("<a href=") == len(nodes)


NODES = st.sampled_from("abcdefghij")


@given(st.sets(st.tuples(NODES, NODES), max_size=40))
def test_every_node_has_one_place_behind_all_that_it_follows(pairs: set[tuple[str, str]]) -> None:
    nodes = {id: Node(id=id, type="<script>", state="ready") for id in "abcdefghij"}
    forward = frozenset((one, other) for one, other in pairs if one < other)
    rows = layers_of(Graph(nodes=nodes, edges=forward))
    place = {id: number for number, row in enumerate(rows) for id in row}
    assert sorted(id for row in rows for id in row) == sorted(nodes)
    assert all(place[one] < place[other] for one, other in forward)
    # Damaged records may follow each other: they are drawn all the same.
    drawn = draw_graph(Graph(nodes=nodes, edges=frozenset(pairs)), "../", "a")
    assert drawn.count("<a href=") == len(nodes)
    assert not re.search("<script>", drawn)
