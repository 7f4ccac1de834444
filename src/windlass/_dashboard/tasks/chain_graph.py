"""The graph of a chain or group: its tasks and the steps that are yet to come, in layers, as SVG."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from markupsafe import Markup
from msgspec import Struct

from ..._documents.tasks import StepDocument, TaskDocument

MAX_NODES = 200
"""Tasks and steps that are drawn."""

PLANNED = "planned"
"""What a step is that has not become a task."""

_BOX_WIDTH, _BOX_HEIGHT = 172, 40
_ACROSS, _DOWN = _BOX_WIDTH + 48, _BOX_HEIGHT + 14
_MARGIN = 8
_MAX_LABEL = 24


class Node(Struct, frozen=True, kw_only=True):
    """A task, or a step that is yet to become one."""

    id: str
    type: str
    state: str


class Graph(Struct, frozen=True, kw_only=True):
    """Nodes by id, and which follows which. `cut`: there are more."""

    nodes: Mapping[str, Node]
    edges: frozenset[tuple[str, str]]
    cut: bool = False

    @property
    def done(self) -> int:
        """The number of tasks that have completed."""
        return sum(node.state == "completed" for node in self.nodes.values())

    def drawn(self, base: str, current: str = "") -> Markup:
        """Return it as SVG; `base` is the prefix of links, and the node `current` is marked."""
        return draw_graph(self, base, current)


def chain_graph(tasks: Sequence[TaskDocument], *, cut: bool = False) -> Graph:
    """Return the graph of the tasks of one root; `cut`: there are more tasks."""
    nodes = {task.id: Node(id=task.id, type=task.type, state=task.state.value) for task in tasks}
    edges: set[tuple[str, str]] = set()
    for task in tasks:
        edges |= {(before, task.id) for before in task.after}
    for task in tasks:
        edges -= _add_steps(task.id, task.next, nodes, edges)
    if len(nodes) > MAX_NODES:
        nodes, cut = dict([*nodes.items()][:MAX_NODES]), True
    return Graph(
        nodes=nodes,
        edges=frozenset((one, other) for one, other in edges if one in nodes and other in nodes),
        cut=cut,
    )


def layers_of(graph: Graph) -> Sequence[Sequence[str]]:
    """Return the ids of nodes in layers: each node behind all that it follows, near those it follows.

    Damaged records may follow each other; such a loop begins in the first layer, or behind what it follows.
    """
    followers, missing = defaultdict(list), dict.fromkeys(graph.nodes, 0)
    for one, other in sorted(graph.edges):
        followers[one].append(other)
        missing[other] += 1
    layer = {id: 0 for id, number in missing.items() if not number}
    waiting = [*layer]
    for id in waiting:  # It grows: nodes are added once all that they follow have a layer.
        for other in followers[id]:
            layer[other] = max(layer.get(other, 0), layer[id] + 1)
            missing[other] -= 1
            if not missing[other]:
                waiting.append(other)
    rows: list[list[str]] = [[] for _ in range(max(layer.values(), default=0) + 1)]
    for id in graph.nodes:
        rows[layer.get(id, 0)].append(id)
    before = defaultdict(list)
    for one, other in graph.edges:
        before[other].append(one)
    place: dict[str, float] = {}
    for row in rows:
        row.sort(key=lambda id: _middle(place[one] for one in before[id] if one in place))
        place |= {id: number for number, id in enumerate(row)}
    return rows


def draw_graph(graph: Graph, base: str, current: str = "") -> Markup:
    """Draw a graph as SVG; each task is a link, and `current` is marked."""
    rows = layers_of(graph)
    tallest = max(map(len, rows), default=0)
    height = tallest * _DOWN + 2 * _MARGIN
    places = {
        id: (number * _ACROSS + _MARGIN, (tallest - len(row)) * _DOWN // 2 + position * _DOWN + _MARGIN)
        for number, row in enumerate(rows)
        for position, id in enumerate(row)
    }
    lines = [_line(places[one], places[other]) for one, other in sorted(graph.edges)]
    boxes = [_box(graph.nodes[id], place, base, is_current=id == current) for id, place in places.items()]
    return Markup(
        '<svg class="graph" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="group" '
        'aria-label="Graph of {2} tasks"><defs><marker id="graph-arrow" viewBox="0 0 8 8" refX="7" refY="4" '
        'markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z"/></marker></defs>{3}{4}</svg>'
    ).format(
        max(len(rows) * _ACROSS - 48 + 2 * _MARGIN, 1), height, len(graph.nodes),
        Markup("").join(lines), Markup("").join(boxes),
    )  # fmt: skip


def _add_steps(
    before: str, steps: Sequence[StepDocument], nodes: dict[str, Node], edges: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Add the steps that follow a task or step; return the edges in whose place they come.

    The last task of a group waits for the end of a chain in it, not for its beginning.
    """
    replaced: set[tuple[str, str]] = set()
    todo = [(before, step) for step in steps]
    while todo and len(nodes) <= MAX_NODES:
        one, step = todo.pop(0)
        if step.on_failure and step.id not in nodes:
            continue  # nothing has failed
        nodes.setdefault(step.id, Node(id=step.id, type=step.type, state=PLANNED))
        edges.add((one, step.id))
        replaced |= {(one, waiting) for waiting in step.before}
        edges |= {(step.id, waiting) for waiting in step.before}
        todo += [(step.id, following) for following in step.next]
    return replaced


def _middle(places: Iterable[float]) -> float:
    found = [*places]
    return sum(found) / len(found) if found else 0.0


def _line(start: tuple[int, int], end: tuple[int, int]) -> Markup:
    x, y = start[0] + _BOX_WIDTH, start[1] + _BOX_HEIGHT // 2
    to_x, to_y = end[0], end[1] + _BOX_HEIGHT // 2
    middle = (x + to_x) // 2
    return Markup('<path d="M{} {}C{} {} {} {} {} {}" marker-end="url(#graph-arrow)"/>').format(
        x, y, middle, y, middle, to_y, to_x, to_y
    )


def _box(node: Node, place: tuple[int, int], base: str, *, is_current: bool) -> Markup:
    x, y = place
    label = node.type if len(node.type) <= _MAX_LABEL else f"{node.type[: _MAX_LABEL - 1]}…"
    box = Markup(
        '<g class="{}"><title>{} {}, {}</title><rect x="{}" y="{}" width="{}" height="{}" rx="7"/>'
        '<text x="{}" y="{}">{}</text><text class="at" x="{}" y="{}">{}</text></g>'
    ).format(
        f"{node.state} current" if is_current else node.state, node.type, node.id, node.state,
        x, y, _BOX_WIDTH, _BOX_HEIGHT, x + 10, y + 17, label, x + 10, y + 32, node.state,
    )  # fmt: skip
    return box if node.state == PLANNED else Markup('<a href="{}tasks/{}">{}</a>').format(base, node.id, box)
