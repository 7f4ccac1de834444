"""Chains and groups: the graph of one."""

from collections.abc import Mapping
from typing import Any

from ..._http.resources.tasks import list_tasks
from ..page import Pages
from ..tasks.chain_graph import MAX_NODES, Graph, chain_graph
from ..view import View

chains = Pages()


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
