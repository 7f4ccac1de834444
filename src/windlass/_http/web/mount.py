"""Where the API is within the addresses of the server: another app may have mounted it."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote


def path_within(connection: Mapping[str, Any]) -> str:
    """The path of a request, below where the API is mounted. Some servers have taken that off already."""
    path: str = connection["path"]
    root: str = connection.get("root_path", "").rstrip("/")
    return path[len(root) :] if path.startswith(f"{root}/") else path


def root_of(connection: Mapping[str, Any]) -> str:
    """Where it is mounted, as a part of an address: whoever asks may have had a say in it."""
    return quote(connection.get("root_path", "").rstrip("/"))
