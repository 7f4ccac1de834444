"""Load the app that `module:attribute` names, with a hint if it is misspelt."""

import importlib
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from .._policy.input.quote import kind_of, quoted
from ..app import App
from ..errors import InvalidOption

_PACKAGE = Path(__file__).parent.parent


def load_app(target: str, imports: Iterable[str] = ()) -> App:
    """Import the module, from the current folder if it is there, then `imports`; return its app.

    `target` is module:attribute, or a module that has one app, or one named `app`.

    Raises InvalidOption with a hint if there is no such module, attribute or app, or the import fails.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    module_name, colon, attribute = target.partition(":")
    if module_name.endswith(".py"):
        dotted = module_name.removesuffix(".py").removeprefix("./").replace("/", ".")
        raise InvalidOption(f"name the app by its module, not by its file: {dotted}:{attribute or 'app'}")
    if not module_name or (colon and not attribute) or any(not part for part in module_name.split(".")):
        raise InvalidOption(
            f"{quoted(target)} does not name an app; write module:attribute, as in shop.tasks:app"
        )
    module = _module(module_name)
    found: object = module
    for part in (attribute or _only_app(module)).split("."):
        if not hasattr(found, part):
            raise InvalidOption(f"{module_name} has no {quoted(attribute)}; {_apps_of(module, attribute)}")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise InvalidOption(f"{target} is {kind_of(found)}, not a windlass.App; {_apps_of(module)}")
    for name in imports:
        _module(name)
    return found


def require_types(app: App, target: str) -> None:
    """Raise InvalidOption if an app that is to run tasks declares none."""
    if not app.types:
        raise InvalidOption(
            f"{target} declares no task types, so a worker could run nothing; import the modules that "
            f"declare them: with --import MODULE, with `imports` in windlass.toml, or in its own module "
            f"(`windlass keeper` runs only the keeper)"
        )


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
    """Say what failed, and on which line of the program: the last one that is not ours."""
    trail = traceback.extract_tb(error.__traceback__)
    ours = ("<frozen importlib", importlib.__path__[0], str(_PACKAGE))
    frames = [frame for frame in trail if not frame.filename.startswith(ours)]
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return InvalidOption(
        f"importing {name} failed: {type(error).__name__}: {error}{where}; --debug shows the traceback"
    )


def _only_app(module: ModuleType) -> str:
    """Return the name of the app of a module: `app`, or the only one. Raises InvalidOption."""
    apps = {name: value for name, value in vars(module).items() if isinstance(value, App)}
    if "app" in apps or len({id(app) for app in apps.values()}) == 1:
        return "app" if "app" in apps else next(iter(apps))
    if not apps:
        raise InvalidOption(_no_app(module))
    names = ", ".join(f"{module.__name__}:{name}" for name in apps)
    raise InvalidOption(f"{module.__name__} contains several apps; name one of {names}")


def _apps_of(module: ModuleType, near: str = "") -> str:
    """A hint at the apps that this module has."""
    apps = [name for name, value in vars(module).items() if isinstance(value, App)]
    if not apps:
        return _no_app(module)
    meant = get_close_matches(near, apps, n=1, cutoff=0.3) or apps[:1]
    return f"did you mean {module.__name__}:{meant[0]}?"


def _no_app(module: ModuleType) -> str:
    return f"{module.__name__} contains no windlass.App; name the module that has it, as in shop.tasks:app"


def _modules_like(name: str) -> str:
    """A hint at a module with a similar name beside the missing one."""
    parent, _, last = name.rpartition(".")
    path = getattr(sys.modules.get(parent), "__path__", ()) if parent else [str(Path.cwd())]
    meant = get_close_matches(last, [module.name for module in pkgutil.iter_modules(path)], n=1)
    if not meant:
        return f"modules are looked up in {Path.cwd()} first; is this the right folder?"
    return f"did you mean {f'{parent}.{meant[0]}' if parent else meant[0]}?"
