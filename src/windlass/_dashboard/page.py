"""Pages as data: the screens of the dashboard, and the actions that its forms send."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from .._model.key import Scope
from .view import View

ScreenHandler: TypeAlias = Callable[[View], Awaitable[Mapping[str, Any]]]
ActionHandler: TypeAlias = Callable[[View], Awaitable["Done | Shown"]]


class Done(Struct, frozen=True):
    """What an action did, and the page to show then, below the dashboard: "queues/mail"."""

    notice: str
    page: str


class Shown(Struct, frozen=True):
    """A page that an action responds with: what is shown once, and not at any address."""

    template: str
    title: str
    data: Mapping[str, Any]


class Screen(Struct, frozen=True, kw_only=True):
    """A page. Its template has a block `live`, which is sent again when it has changed; and maybe `fixed`.

    `status` in the data of a page is that of the response.
    Without a template it is a file to download: its handler returns the response.
    `bound`: keys that are bound to a tenant or queues may see it; `by_tenant`: also those of a tenant.
    `live`: whether it changes by itself.
    """

    path: str
    template: str
    title: str
    handler: ScreenHandler
    scope: Scope = Scope.READ
    bound: bool = False
    by_tenant: bool = True
    live: bool = True

    @property
    def section(self) -> str:
        """The first part of its path, by which the menu marks it."""
        return self.path.split("/")[1]

    def is_open_to(self, view: View) -> bool:
        """Tell whether the caller may see it."""
        caller = view.caller
        within = (self.bound or not caller.is_bound) and (self.by_tenant or caller.tenant is None)
        return caller.has_scope(self.scope) and within


class Action(Struct, frozen=True, kw_only=True):
    """What a form does. The operations that it calls check what the caller may do.

    `form`: the path of the page that has the form. If the action fails, that page is shown again with the
    reason; its screen fills the form with the fields of `view`.
    """

    path: str
    handler: ActionHandler
    form: str = ""


class Pages:
    """Collects the screens and actions of one part of the dashboard."""

    def __init__(self) -> None:
        self.screens: list[Screen] = []
        self.actions: list[Action] = []

    def screen(
        self, path: str, template: str, title: str, **options: Any
    ) -> Callable[[ScreenHandler], ScreenHandler]:
        """Declare the decorated function as what reads the data of a page's template."""

        def declare(handler: ScreenHandler) -> ScreenHandler:
            self.screens.append(Screen(path=path, template=template, title=title, handler=handler, **options))
            return handler

        return declare

    def action(self, path: str, *, form: str = "") -> Callable[[ActionHandler], ActionHandler]:
        """Declare the decorated function as what a form that is sent to this path does."""

        def declare(handler: ActionHandler) -> ActionHandler:
            self.actions.append(Action(path=path, handler=handler, form=form))
            return handler

        return declare
