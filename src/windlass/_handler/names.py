"""Functions that a program declares: their names, and whether they can be called as they will be."""

import inspect
from collections.abc import Callable
from typing import Any


def function_name(function: Callable[..., Any]) -> str:
    """Return module.function, or only the function's name in the main program."""
    module = getattr(function, "__module__", "__main__")
    qualified = getattr(function, "__qualname__", type(function).__qualname__).replace("<locals>.", "")
    return qualified if module == "__main__" else f"{module}.{qualified}"


def takes(function: Callable[..., Any], arguments: int) -> bool:
    """Tell whether a function can be called with this number of positional arguments."""
    try:
        inspect.signature(function).bind(*range(arguments))
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True
