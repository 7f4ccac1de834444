"""Names of functions, as errors and task types have them."""

from collections.abc import Callable
from typing import Any


def function_name(function: Callable[..., Any]) -> str:
    """Return module.function, or only the function's name in the main program."""
    module = getattr(function, "__module__", "__main__")
    qualified = getattr(function, "__qualname__", type(function).__qualname__).replace("<locals>.", "")
    return qualified if module == "__main__" else f"{module}.{qualified}"
