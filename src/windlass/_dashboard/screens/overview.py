"""The overview: are we backed up?"""

from collections.abc import Mapping
from typing import Any

from ..._http.resources.events import get_overview
from ..page import Pages
from ..view import View

overview = Pages()


@overview.screen("/", "overview.html", "Overview", bound=True)
async def show_overview(view: View) -> Mapping[str, Any]:
    """Queues, workers, failures at a glance."""
    seen = await view.call(get_overview)
    return {"overview": seen, "queues": seen.queues, "total": _totals(seen.queues)}


def _totals(queues: list[Any]) -> Mapping[str, int]:
    states = ("waiting", "scheduled", "ready", "running", "dead")
    return {state: sum(queue.counts[state] for queue in queues) for state in states}
