"""Functions that a program declares: their names, and whether they can be called as they will be."""

import functools
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHILD_MAIN = "__windlass_child__"
"""The name under which a child process runs the script of its worker."""

_MAIN = frozenset({"__main__", "__mp_main__", CHILD_MAIN})
"""Names of a module that was run, not imported: by Python, by multiprocessing, by a child process."""

_IMPORTABLE = re.compile(r"\w[\w-]*")


def function_name(function: Callable[..., Any]) -> str:
    """Return module.function, or only the function's name if its module has none: see `module_name`."""
    qualified = getattr(function, "__qualname__", type(function).__qualname__).replace("<locals>.", "")
    module = module_name(function)
    return qualified if module is None else f"{module}.{qualified}"


def module_name(function: Callable[..., Any]) -> str | None:
    """Return the name by which any process can import the module of a function.

    For a program that was run directly it is what `python -m` was given, or else follows from its file. None
    if there is neither: its code came from stdin, -c, a shell or a notebook.
    """
    module: str = getattr(function, "__module__", "__main__")
    if module not in _MAIN:
        return module
    loaded = getattr(inspect.unwrap(function), "__globals__", {})
    if loaded.get("__name__") not in _MAIN:  # a callable object, or what a decorator of another module made
        loaded = vars(sys.modules["__main__"])
    spec = loaded.get("__spec__")
    if spec is not None and spec.name not in _MAIN:
        return str(spec.name)
    return _name_of_script(loaded.get("__file__"))


def is_loaded_twice(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Tell whether two functions are one of a script that has also been imported, as by its own modules."""
    code = getattr(inspect.unwrap(one), "__code__", None)
    return (
        code is not None
        and code == getattr(inspect.unwrap(other), "__code__", None)
        and one.__module__ != other.__module__
    )


def is_generator_function(function: Callable[..., Any]) -> bool:
    """Tell whether a call makes a generator, async or not, also through `partial` and `functools.wraps`."""
    inner: Any = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inspect.unwrap(inner.func)
    if not inspect.isroutine(inner):  # an object that can be called
        inner = type(inner).__call__
    return inspect.isgeneratorfunction(inner) or inspect.isasyncgenfunction(inner)


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Tell whether a function can be called with this number of positional arguments."""
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True


def _name_of_script(file: str | None) -> str | None:
    """Name a script as a module of its package: the folders around it that have an __init__.py.

    The name must not depend on the current folder, as producers and workers may start in different ones.
    """
    if file is None or not file.endswith(".py"):
        return None
    path = Path(file).absolute()
    parts = [path.stem]
    for folder in path.parents:
        if not (folder / "__init__.py").is_file():
            break
        parts.insert(0, folder.name)
    is_known = parts != ["__main__"] and all(_IMPORTABLE.fullmatch(part) for part in parts)
    return ".".join(parts) if is_known else None
