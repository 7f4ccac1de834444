"""Chains and groups: the newest ones, and the graph of one."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from ..._documents.tasks import ChainDocument
from ..._http.resources.tasks import list_chains, list_tasks
from ..._model.state import State
from ..page import Pages
from ..tasks.chain_graph import MAX_NODES, Graph, chain_graph
from ..view import View

chains = Pages()

PAGE = 25
"""Chains on a page."""


class Chain(Struct, frozen=True, kw_only=True):
    """A chain or group in the list. `state` is that of the task on which it depends most."""

    document: ChainDocument
    state: State
    done: int
    total: int


@chains.screen("/chains", "chains.html", "Chains", bound=True)
async def show_chains(view: View) -> Mapping[str, Any]:
    """A page of chains and groups, newest first."""
    cursor = view.query("cursor")
    page = await view.call(list_chains, query={"limit": PAGE} | ({"cursor": cursor} if cursor else {}))
    following = None if page.cursor is None else "?" + urlencode({"cursor": page.cursor})
    return {"chains": [_chain(one) for one in page.items], "next": following, "is_first": not cursor}


@chains.screen("/chains/{root}", "chain.html", "Chain", bound=True)
async def show_chain(view: View) -> Mapping[str, Any]:
    """Show the graph of a chain or group."""
    root = view.path("root")
    graph = await read_graph(view, root)
    first = graph.nodes.get(root)
    return {"root": root, "graph": graph, "first": first, "status": 200 if graph.nodes else 404}


async def read_graph(view: View, root: str) -> Graph:
    """Read the graph of the tasks of a root; it is empty if there are none."""
    page = await view.call(list_tasks, query={"root": root, "limit": MAX_NODES})
    return chain_graph(page.items, cut=page.cursor is not None)


def _chain(document: ChainDocument) -> Chain:
    return Chain(
        document=document,
        state=next((state for state in _TELLING if document.tasks.get(state)), State.COMPLETED),
        done=document.tasks.get(State.COMPLETED, 0),
        total=sum(document.tasks.values()) + document.steps,
    )


_TELLING = (
    State.DEAD,
    State.RUNNING,
    State.READY,
    State.SCHEDULED,
    State.CANCELLED,
    State.WAITING,
    State.COMPLETED,
)
"""States, the one first that tells most about a chain."""
