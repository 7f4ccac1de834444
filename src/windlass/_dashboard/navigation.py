"""The menu, and the pages that the command palette offers."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from .page import Pages, Screen
from .view import View


class Item(Struct, frozen=True, kw_only=True):
    """An entry of the menu. `key`: typed after `g`, it leads there."""

    path: str
    label: str
    icon: str
    key: str


ITEMS = (
    Item(path="", label="Overview", icon="house", key="o"),
    Item(path="tasks", label="Tasks", icon="list", key="t"),
    Item(path="failures", label="Failures", icon="skull", key="f"),
    Item(path="queues", label="Queues", icon="layers", key="q"),
    Item(path="limits", label="Limits", icon="gauge", key="i"),
    Item(path="workers", label="Workers", icon="users", key="w"),
    Item(path="schedules", label="Schedules", icon="calendar-clock", key="s"),
    Item(path="chains", label="Chains", icon="git-branch", key="c"),
    Item(path="metrics", label="Metrics", icon="chart-line", key="m"),
    Item(path="alerts", label="Alerts", icon="bell", key="a"),
    Item(path="audit", label="Audit log", icon="scroll-text", key="l"),
    Item(path="keys", label="Keys", icon="key-round", key="k"),
    Item(path="health", label="Health", icon="heart-pulse", key="h"),
)


class Navigation:
    """The menu of the screens that exist."""

    def __init__(self, pages: Sequence[Pages]) -> None:
        found = {screen.path: screen for some in pages for screen in some.screens}
        self._items = [(item, found[f"/{item.path}"]) for item in ITEMS if f"/{item.path}" in found]

    def menu(self, view: View, current: Screen | None) -> list[dict[str, Any]]:
        """Return the entries that the caller may see."""
        section = None if current is None else current.section
        return [
            {
                "path": item.path,
                "label": item.label,
                "icon": item.icon,
                "key": item.key,
                "is_current": section == item.path,
            }
            for item, screen in self._items
            if screen.is_open_to(view)
        ]
