"""Stands between SQLite and the file system: sees every write, and may refuse one.

The library that Python's own `sqlite3` module uses is told, through ctypes, to send writes, truncations,
syncs and deletions through here. No compiler and no second SQLite: the store under test runs as it is.
"""

import ctypes
import ctypes.util
import sqlite3
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, Protocol

OK = 0
FULL = 13

# The name is passed on as the pointer it is: SQLite keeps it, and reads what stands behind it.
_Open = CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, POINTER(c_int))
_Delete = CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_Close = CFUNCTYPE(c_int, c_void_p)
_Write = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_Truncate = CFUNCTYPE(c_int, c_void_p, c_int64)
_Sync = CFUNCTYPE(c_int, c_void_p, c_int)
_OpenDirectory = CFUNCTYPE(c_int, c_char_p, POINTER(c_int))
_SetCall = CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p)
_GetCall = CFUNCTYPE(c_void_p, c_void_p, c_char_p)

_METHODS = 18  # function pointers in sqlite3_io_methods, version 3
_CLOSE, _WRITE, _TRUNCATE, _SYNC = 0, 2, 3, 4


class _System(Structure):
    """`sqlite3_vfs`, version 3."""

    _fields_ = (
        ("version", c_int),
        ("file_size", c_int),
        ("max_path", c_int),
        ("next", c_void_p),
        ("name", c_char_p),
        ("data", c_void_p),
        ("open", c_void_p),
        ("delete", c_void_p),
        ("between", c_void_p * 11),  # access … current time: left as they are
        ("set_call", c_void_p),
        ("get_call", c_void_p),
        ("next_call", c_void_p),
    )


class _Methods(Structure):
    """`sqlite3_io_methods`, version 3."""

    _fields_ = (("version", c_int), ("methods", c_void_p * _METHODS))


class Watcher(Protocol):
    """Who is told. `allows` is asked before a write; the others are told after it was done."""

    def allows(self, path: str, end: int) -> bool:
        """Whether there is room for a write that ends at this offset."""
        ...

    def opened(self, path: str) -> None:
        """A file was opened, and made if it was not there."""
        ...

    def wrote(self, path: str, offset: int, data: bytes) -> None:
        """Bytes were written."""
        ...

    def truncated(self, path: str, size: int) -> None:
        """A file was cut to this size."""
        ...

    def synced(self, path: str) -> None:
        """A file was synced."""
        ...

    def deleted(self, path: str) -> None:
        """A file was deleted."""
        ...

    def directory_synced(self, path: str) -> None:
        """A directory was synced."""
        ...


def library() -> ctypes.CDLL:
    """The SQLite that the `sqlite3` module uses; RuntimeError where it keeps its functions to itself."""
    import _sqlite3

    found = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    try:
        found.sqlite3_vfs_find.restype = c_void_p
        found.sqlite3_libversion.restype = c_char_p
    except AttributeError:
        raise RuntimeError(
            "this Python has SQLite built in without its functions in reach; use a Python whose sqlite3 "
            "module is linked to libsqlite3 (Debian's, or one built from source)"
        ) from None
    assert found.sqlite3_libversion().decode() == sqlite3.sqlite_version
    return found


_installed: list["Beneath"] = []
"""For as long as the process lives: SQLite has pointers to them."""


class Beneath:
    """A file system for SQLite that tells a watcher. Once installed, it serves all later connections."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._paths: dict[int, str] = {}
        self._tables: dict[int, tuple[_Methods, dict[str, Any]]] = {}
        self._local = threading.local()
        self._kept: list[Any] = []  # C holds pointers to these

    def install(self) -> None:
        """Become the default of this process."""
        sqlite = library()
        plain = sqlite.sqlite3_vfs_find(None)
        self._plain = _System.from_address(plain)
        self._system = _System.from_buffer_copy(self._plain)
        self._system.name = b"beneath"
        self._plain_open = _Open(self._plain.open)
        self._plain_delete = _Delete(self._plain.delete)
        self._system.open = self._pointer(_Open(self._open))
        self._system.delete = self._pointer(_Delete(self._delete))
        self._plain_directory = _OpenDirectory(
            _GetCall(self._plain.get_call)(ctypes.addressof(self._plain), b"openDirectory")
        )
        hook = self._pointer(_OpenDirectory(self._open_directory))
        _SetCall(self._plain.set_call)(ctypes.addressof(self._plain), b"openDirectory", hook)
        if code := sqlite.sqlite3_vfs_register(ctypes.byref(self._system), 1):
            raise RuntimeError(f"SQLite did not take the file system: {code}")
        _installed.append(self)

    def _pointer(self, function: Any) -> int | None:
        self._kept.append(function)
        return ctypes.cast(function, c_void_p).value

    # -- called by SQLite ----------------------------------------------------------------------------

    def _open(self, system: int, name: int | None, file: int, flags: int, out: Any) -> int:
        code = self._plain_open(system, name, file, flags, out)
        if code != OK or name is None:
            return code
        self._paths[file] = ctypes.string_at(name).decode()
        methods = c_void_p.from_address(file)
        assert methods.value is not None
        methods.value = self._watched(methods.value)
        self._watcher.opened(self._paths[file])
        return code

    def _watched(self, plain: int) -> int:
        """A copy of a table of methods, with ours in some places."""
        if plain not in self._tables:
            table = _Methods.from_buffer_copy(_Methods.from_address(plain))
            originals = {
                "close": _Close(table.methods[_CLOSE]),
                "write": _Write(table.methods[_WRITE]),
                "truncate": _Truncate(table.methods[_TRUNCATE]),
                "sync": _Sync(table.methods[_SYNC]),
            }
            table.methods[_CLOSE] = self._pointer(_Close(lambda file: self._close(originals, file)))
            table.methods[_WRITE] = self._pointer(
                _Write(lambda file, data, size, at: self._write(originals, file, data, size, at))
            )
            table.methods[_TRUNCATE] = self._pointer(
                _Truncate(lambda file, size: self._truncate(originals, file, size))
            )
            table.methods[_SYNC] = self._pointer(
                _Sync(lambda file, flags: self._sync(originals, file, flags))
            )
            self._tables[plain] = table, originals
        return ctypes.addressof(self._tables[plain][0])

    def _close(self, plain: dict[str, Any], file: int) -> int:
        self._paths.pop(file, None)
        return plain["close"](file)

    def _write(self, plain: dict[str, Any], file: int, data: int, size: int, offset: int) -> int:
        path = self._paths[file]
        if not self._watcher.allows(path, offset + size):
            return FULL
        code = plain["write"](file, data, size, offset)
        if code == OK:
            self._watcher.wrote(path, offset, ctypes.string_at(data, size))
        return code

    def _truncate(self, plain: dict[str, Any], file: int, size: int) -> int:
        code = plain["truncate"](file, size)
        if code == OK:
            self._watcher.truncated(self._paths[file], size)
        return code

    def _sync(self, plain: dict[str, Any], file: int, flags: int) -> int:
        self._local.directories = []
        code = plain["sync"](file, flags)
        directories, self._local.directories = self._local.directories, None
        if code == OK:
            self._watcher.synced(self._paths[file])
        for directory in directories:  # SQLite syncs the file first, then the directory that names it
            self._watcher.directory_synced(directory)
        return code

    def _delete(self, system: int, name: bytes, sync_directory: int) -> int:
        self._local.directories = []
        code = self._plain_delete(system, name, sync_directory)
        directories, self._local.directories = self._local.directories, None
        if code == OK:
            self._watcher.deleted(name.decode())
        for directory in directories:
            self._watcher.directory_synced(directory)
        return code

    def _open_directory(self, name: bytes, out: Any) -> int:
        """SQLite opens a directory for one reason: to sync it."""
        code = self._plain_directory(name, out)
        if code == OK:
            waiting = getattr(self._local, "directories", None)
            directory = str(Path(name.decode()).parent)
            if waiting is None:
                self._watcher.directory_synced(directory)
            else:
                waiting.append(directory)
        return code
