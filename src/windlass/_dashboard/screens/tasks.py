"""Tasks: find them, act on those that were picked or on all that match, export them."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct
from starlette.responses import StreamingResponse

from ..._http.resources.events import get_overview
from ..._http.resources.task_types import list_types
from ..._http.resources.tasks import (
    MAX_AT_ONCE,
    cancel_tasks,
    count_tasks,
    discard_dead,
    list_tasks,
    replay_dead,
)
from ..._http.web.load import held_by
from ..._http.web.problems import Problem
from ..._model.brief import Brief
from ..._model.state import ENDED, State
from ..page import Done, Pages
from ..tasks.export import FORMATS, MAX_EXPORTED, export_lines
from ..tasks.qualifiers import (
    QUALIFIERS,
    Criteria,
    InvalidFilter,
    api_filter,
    checked_criteria,
    format_filter,
    merged,
    parse_filter,
)
from ..view import View

tasks = Pages()

PAGE = 50
"""Tasks on a page."""

SEARCH_SECONDS = 2.0
"""Time for a search: one that no index serves may have to read every task."""

_EXPORT_BYTES = 5 << 20
_MAX_SUGGESTED = 200


class Search(Brief, Struct, frozen=True, kw_only=True):
    """What a page of tasks is asked for: the text of its filter bar, and the criteria that this means."""

    text: str
    criteria: Criteria = {}
    problem: InvalidFilter | None = None

    @property
    def state(self) -> str:
        """The state whose tab is open; empty: all."""
        states = self.criteria.get("state", ())
        return states[0] if len(states) == 1 else ""

    @property
    def where(self) -> dict[str, Any]:
        """The criteria as the API's filter."""
        return api_filter(self.criteria, datetime.now(UTC))

    def query(self, *, state: str | None = None, **more: str) -> str:
        """Return the query of a URL for this search, with another state, and more parameters."""
        wanted = self.state if state is None else state
        given = {"state": wanted, "q": self.text, **more}
        return urlencode({name: value for name, value in given.items() if value})


class BulkAction(Struct, frozen=True, kw_only=True):
    """An action on many tasks. `applies`: the states of tasks that it changes."""

    verb: str
    past: str
    icon: str
    tone: str
    operation: Any
    applies: frozenset[State]
    effect: str

    def is_for(self, state: str) -> bool:
        """Tell whether tasks of this state can change; any, if it is empty."""
        return not state or state in self.applies


ACTIONS = {
    one.verb: one
    for one in (
        BulkAction(
            verb="cancel",
            past="cancelled",
            icon="ban",
            tone="",
            operation=cancel_tasks,
            applies=frozenset(State) - ENDED,
            effect="Pending tasks never start, and running ones are asked to stop.",
        ),
        BulkAction(
            verb="replay",
            past="replayed",
            icon="rotate-ccw",
            tone="",
            operation=replay_dead,
            applies=frozenset({State.DEAD}),
            effect="Dead tasks become ready again, with all their attempts.",
        ),
        BulkAction(
            verb="discard",
            past="discarded",
            icon="trash-2",
            tone="danger",
            operation=discard_dead,
            applies=frozenset({State.DEAD}),
            effect="Dead tasks are deleted for good. This cannot be undone.",
        ),
    )
}


def read_search(view: View, *, without: str = "") -> Search:
    """Read the search of a page from its URL; `q` has qualifiers, and each is also a parameter.

    `without`: the name of a parameter that has another meaning on the page.
    """
    text = view.query("q")
    given = {name: view.queries(name) for name in QUALIFIERS if name != without and any(view.queries(name))}
    try:
        criteria = merged(parse_filter(text), checked_criteria(given))
    except InvalidFilter as problem:
        return Search(text=text, problem=problem)
    several = len(criteria.get("state", ())) > 1
    shown = {name: values for name, values in criteria.items() if name != "state" or several}
    return Search(text=format_filter(shown), criteria=criteria)


@tasks.screen("/tasks", "tasks.html", "Tasks", bound=True)
async def show_tasks(view: View) -> Mapping[str, Any]:
    """A page of the tasks that match, newest first."""
    search = read_search(view)
    data: dict[str, Any] = {"search": search, "qualifiers": QUALIFIERS, "states": [*State]}
    data |= {
        "gave_up_after": None,
        "actions": ACTIONS.values(),
        "suggestions": await _suggestions(view),
        "max": MAX_EXPORTED,
    }
    cursor = view.query("cursor")
    nothing: dict[str, Any] = {"items": [], "counts": {}, "next": None, "is_first": not cursor}
    if search.problem is not None:
        return data | nothing
    where = search.where
    asked = {**where, "limit": PAGE, "newest_first": True} | ({"cursor": cursor} if cursor else {})
    try:
        async with asyncio.timeout(SEARCH_SECONDS):
            page = await view.call(list_tasks, query=asked)
    except TimeoutError:
        return data | nothing | {"gave_up_after": SEARCH_SECONDS}
    in_any_state = {name: value for name, value in where.items() if name != "state"}
    counts = await view.soon(view.call(count_tasks, query=in_any_state))
    numbers = {} if counts is None else {one.state: one for one in counts.items}
    following = None if page.cursor is None else "?" + search.query(cursor=page.cursor)
    return data | {"items": page.items, "counts": numbers, "next": following, "is_first": not cursor}


@tasks.screen("/tasks/act", "tasks_act.html", "Tasks", bound=True, live=False)
async def confirm_action(view: View) -> Mapping[str, Any]:
    """Ask whether to act on the tasks that were picked, or on all that match."""
    search = read_search(view, without="id")
    if not view.queries("id") and not view.query("all"):
        return {"action": ACTIONS["cancel"], "number": 0, "is_picked": False, "search": search}
    action, where = _asked(view.query("do"), view.queries("id"), view.query("all"), search)
    counted = await view.call(action.operation, body={"where": where, "dry_run": True, "why": "counting"})
    return {
        "action": action,
        "number": min(counted.number, MAX_AT_ONCE),
        "counted": counted,
        "is_picked": True,
        "search": search,
        "ids": [] if view.query("all") else view.queries("id"),
    }


@tasks.action("/tasks/act")
async def act(view: View) -> Done:
    """Act on the tasks that were picked, or on all that match: as many as were confirmed."""
    criteria = merged(parse_filter(view.field("q")), checked_criteria({"state": _given(view.field("state"))}))
    search = Search(text=view.field("q"), criteria=criteria)
    action, where = _asked(view.field("do"), view.form.get("id", ()), view.field("all"), search)
    number, typed = view.field("number"), view.field("typed").replace(",", "")
    if not number.isdecimal() or typed != number:
        raise Problem("invalid-request", "type the number of tasks to confirm; nothing was changed")
    done = await view.call(
        action.operation, body={"where": where, "limit": max(int(number), 1), "why": view.why}
    )
    words = "1 task was" if done.number == 1 else f"{done.number:,} tasks were"
    return Done(f"{words} {action.past}.", f"tasks?{search.query()}")


@tasks.screen("/tasks/export", "", "Tasks", bound=True, live=False)
async def export(view: View) -> Any:
    """Send the tasks that match as a file, newest first."""
    search = read_search(view)
    kind = FORMATS.get(view.query("format"))
    if search.problem is not None:
        raise Problem("invalid-request", str(search.problem))
    if kind is None:
        raise Problem("invalid-request", f"the format must be one of {', '.join(FORMATS)}")
    held_by(view.http).begin_stream(_EXPORT_BYTES)
    name = f"tasks.{kind.suffix}"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    lines = export_lines(view, kind, search.where)
    return StreamingResponse(lines, media_type=kind.media_type, headers=headers)


def _asked(verb: str, ids: Any, everything: str, search: Search) -> tuple[BulkAction, dict[str, Any]]:
    """Return the action, and the filter of the tasks to act on."""
    if verb not in ACTIONS:
        raise Problem("not-found", "there is no such action")
    if search.problem is not None:
        raise Problem("invalid-request", str(search.problem))
    if everything:
        return ACTIONS[verb], search.where
    if not ids:
        raise Problem("invalid-request", "no task was picked; go back and tick some")
    return ACTIONS[verb], {"id": [*ids]}


def _given(value: str) -> list[str]:
    return [value] if value else []


async def _suggestions(view: View) -> list[str]:
    """Return words that complete a filter: the names of queues, types and states."""
    overview = await view.soon(view.call(get_overview))
    words = [format_filter({"queue": (one.queue,)}) for one in (overview.queues if overview else [])]
    if view.may_call(list_types):
        words += [format_filter({"type": (one.name,)}) for one in (await view.call(list_types)).items]
    words = words[:_MAX_SUGGESTED] + [f"state:{state}" for state in State]
    return [*words, *(f"{name}:" for name in QUALIFIERS if name not in ("queue", "type", "state"))]
