"""The file that names the shards and their URLs, each a store of its own.

    [shards]
    a = "postgresql://app@db1/shop"
    b = "postgresql://app@db2/shop"

What is on which shard is not in it but in the shards themselves, so that all processes route alike.
"""

import re
import tomllib
from pathlib import Path

from ...._model.record import MAX_SHARDS
from ....errors import InvalidOption

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.ASCII)


def read_urls(path: Path) -> dict[str, str]:
    """Return the URLs of the shards by their names, in the order of the file. Raises InvalidOption."""
    try:
        with path.open("rb") as file:
            content = tomllib.load(file)
    except OSError as error:
        raise InvalidOption(
            f"cannot read the shards from {path}: {error.strerror}; write an absolute path as "
            f"shards:///etc/windlass/shards.toml, one in this folder as shards://shards.toml"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidOption(f"{path} is not valid TOML: {error}") from None
    urls = content.pop("shards", None)
    if content or not isinstance(urls, dict) or not urls or len(urls) > MAX_SHARDS:
        raise InvalidOption(
            f'{path} must have one table, [shards], with 1 to {MAX_SHARDS} lines such as a = "postgresql://…"'
        )
    for name, url in urls.items():
        if not _NAME.fullmatch(name):
            raise InvalidOption(
                f"{path}: the name of a shard is up to 32 lower-case letters, digits, - and _, got {name!r}"
            )
        if not isinstance(url, str) or url.startswith("shards:"):
            raise InvalidOption(f"{path}: shard {name!r} must be the URL of a single store")
        twin = next(one for one, its_url in urls.items() if its_url == url)
        if twin != name and not url.startswith("memory:"):  # of which each is a store of its own
            raise InvalidOption(f"{path}: shards {twin!r} and {name!r} have the same URL")
    return urls
