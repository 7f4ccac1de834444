"""Forked children: they open connections of their own, and never use, close or free those of their parent.

Parent and child share each socket, and the epoll instance of each event loop. A driver that frees a
connection in the child ends the session of the parent's (asyncpg sends Terminate), takes the socket out of
the parent's epoll instance, or rolls back the parent's transaction (SQLite).
"""

import ctypes
import os
from typing import Protocol
from weakref import WeakSet


class Inherited(Protocol):
    """A handle with connections, or what keeps them for it."""

    def leave_to_parent(self) -> None:
        """In a forked child: forget the connections without touching them, with `never_free`."""


_open: "WeakSet[Inherited]" = WeakSet()


def leave_in_children(one: Inherited) -> None:
    """Call its `leave_to_parent` in each child that is forked while it exists."""
    _open.add(one)


def never_free(*inherited: object) -> None:
    """Keep objects from ever being freed, and all that they refer to, even when the interpreter exits.

    A dict with event loops as keys also keeps the tasks of those loops, which would clean up when freed.
    """
    for one in inherited:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))


def _after_fork() -> None:
    for one in list(_open):
        one.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
