"""From `module:attribute` to the app it names, with a hint for whoever misspelt it."""

import importlib
import pkgutil
import sys
import traceback
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from .._policy.input.quoting import kind_of, quoted
from ..app import App
from ..errors import InvalidOption


def load_app(target: str) -> App:
    """The app at `module:attribute`; modules in the current folder can be named."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module_name, colon, attribute = target.partition(":")
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise InvalidOption(f"an app is named by its module, not its file: try {dotted}:{attribute or 'app'}")
    if not module_name or (colon and not attribute) or any(not part for part in module_name.split(".")):
        raise InvalidOption(f"an app is named module:attribute, as in shop.tasks:app, not {quoted(target)}")
    module = _module(module_name)
    if not colon:
        raise InvalidOption(f"an app is named module:attribute, not {quoted(target)}; {_apps_of(module)}")
    found: object = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InvalidOption(f"{module_name} has no {quoted(attribute)}; {_apps_of(module, attribute)}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise InvalidOption(f"{target} is {kind_of(found)}, not a windlass.App; {_apps_of(module)}")
    return found


def _module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise InvalidOption(
                f"there is no module {quoted(name)} here or on the Python path; {_modules_like(error.name)}"
            ) from None
        raise _failed(name, error) from error
    except Exception as error:  # importing runs the user's own code, which may raise anything
        raise _failed(name, error) from error


def _failed(name: str, error: Exception) -> InvalidOption:
    trail = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trail if "importlib" not in frame.filename]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if len(frames) > 1 else ""
    return InvalidOption(
        f"importing {name} failed: {type(error).__name__}: {error}{where}; --debug shows the traceback"
    )


def _apps_of(module: ModuleType, near: str = "") -> str:
    """A hint: the apps that this module does have."""
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not apps:
        return f"no windlass.App is made in {module.__name__}"
    meant = get_close_matches(near, apps, n=1, cutoff=0.3) or apps[:1]
    return f"did you mean {module.__name__}:{meant[0]}?"


def _modules_like(name: str) -> str:
    """A hint: a module beside the missing one that is spelt nearly so."""
    parent, _, last = name.rpartition(".")
    path = getattr(sys.modules.get(parent), "__path__", ()) if parent else [str(Path.cwd())]
    meant = get_close_matches(last, [module.name for module in pkgutil.iter_modules(path)], n=1)
    if not meant:
        return f"commands look in {Path.cwd()} first: are you in the right folder?"
    return f"did you mean {f'{parent}.{meant[0]}' if parent else meant[0]}?"
