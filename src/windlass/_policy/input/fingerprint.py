"""Fingerprints: which tasks of a unique type are equal, and for how long that is refused."""

import re
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import msgspec

from ..._model.options import Options, Unique
from ...errors import InvalidOption
from .keys import digest
from .options import checked_names, parse_duration
from .payload import canonical
from .quote import quoted, suggestion

MAX_FIELDS_BYTES = 1000  # of the JSON list of the fields that a fingerprint is made of
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)
_DIGEST_LENGTH = 64
_names = msgspec.json.Decoder(list[str])


def unique_options(
    options: Options, unique: Unique, unique_for: timedelta | None
) -> tuple[Unique, timedelta | None]:
    """Return what `unique` and `unique_for` are with these options; a period makes a task unique."""
    if "unique" not in options and "unique_for" not in options:
        return unique, unique_for
    if "unique" in options:
        unique = checked_unique(options["unique"])
    given = options.get("unique_for", None if unique is False else unique_for)
    if given is None:
        return unique, None
    if unique is False and "unique" in options:
        raise InvalidOption("unique_for needs unique; leave out unique=False")
    period = parse_duration(given, "unique_for")
    if not period:
        raise InvalidOption("unique_for must be greater than 0; use None for no period")
    return unique or True, period


def declared_unique(
    unique: Unique | Sequence[str], unique_for: timedelta | float | str | None
) -> tuple[Unique, timedelta | None]:
    """Return what a task type declares; there, `unique` is false if it is left out."""
    options = Options(unique_for=unique_for)
    if unique is not False:
        options["unique"] = unique
    return unique_options(options, unique=False, unique_for=None)


def checked_unique(value: Unique | Sequence[str]) -> Unique:
    """Check the option `unique`: whether, or by which fields of the payload, tasks are equal."""
    if isinstance(value, bool):
        return value
    fields = tuple(sorted(set(checked_names(value, "unique")))) if isinstance(value, Collection) else ()
    if not fields:
        raise InvalidOption(f"unique must be true, false or names of payload fields, got {quoted(value)}")
    if len(_listed(fields)) > MAX_FIELDS_BYTES:
        raise InvalidOption(f"the fields of unique are longer than {MAX_FIELDS_BYTES:,} bytes in all")
    return fields


def check_fields(unique: Unique, known: Collection[str], whose: str) -> None:
    """Raise InvalidOption for a field of `unique` that is not known; `whose` names what would have it."""
    for field in unique if isinstance(unique, tuple) else ():
        if field not in known:
            hint = suggestion(field, known)
            raise InvalidOption(f"unique names the field {quoted(field)}, which {whose} does not have{hint}")


def field_names(payload: bytes) -> frozenset[str]:
    """Return the names of a payload's fields."""
    return frozenset(msgspec.json.decode(payload, type=dict[str, msgspec.Raw]))


def fingerprint(unique: Unique, type_name: str, payload: bytes, priority: int, tenant: str) -> str | None:
    """Hash what makes unique tasks equal: type, tenant, and payload and priority or fields of the payload.

    With fields, their names follow the digest, so that `fingerprint_like` can make another. None if tasks
    are not unique.
    """
    if unique is False:
        return None
    if unique is True:
        return digest(type_name.encode(), canonical(payload), str(priority).encode(), tenant.encode())
    document = msgspec.json.decode(payload, type=dict[str, Any])
    chosen = msgspec.json.encode({name: document[name] for name in unique if name in document})
    listed = _listed(unique)
    return digest(type_name.encode(), tenant.encode(), canonical(chosen), listed) + listed.decode()


def fingerprint_within(queue: str, other: str) -> str:
    """Return a fingerprint for tasks that are equal and in this queue."""
    made = digest(other[:_DIGEST_LENGTH].encode(), queue.encode())
    return made + other[_DIGEST_LENGTH:]


def fingerprint_like(
    other: str | None, type_name: str, payload: bytes, priority: int, tenant: str
) -> str | None:
    """Return the fingerprint of a task that is unique in the same way as one with another fingerprint."""
    if other is None or not is_fingerprint(other):  # Tasks of a schedule share one, whatever the payload.
        return other
    listed = other[_DIGEST_LENGTH:]
    return fingerprint(tuple(_names.decode(listed)) if listed else True, type_name, payload, priority, tenant)


def masked_fingerprint(other: str) -> str:
    """Return a fingerprint that is unique in the same way and says nothing of the payload.

    Who has another could find a short secret in the payload by trying values.
    """
    return "0" * _DIGEST_LENGTH + other[_DIGEST_LENGTH:] if is_fingerprint(other) else other


def is_fingerprint(text: str) -> bool:
    """Whether `fingerprint` can return this text."""
    listed = text[_DIGEST_LENGTH:]
    if _DIGEST.fullmatch(text[:_DIGEST_LENGTH]) is None or len(listed.encode()) > MAX_FIELDS_BYTES:
        return False
    try:
        return not listed or bool(_names.decode(listed))
    except msgspec.MsgspecError:
        return False


def _listed(fields: tuple[str, ...]) -> bytes:
    return msgspec.json.encode(fields)
