"""Task types as records of the store: what to publish of a declaration, and how to retry by it."""

from collections.abc import Sequence
from datetime import timedelta

import msgspec
from msgspec.structs import asdict, replace

from .._model.options import DeclaredType, Defaults, by_name_or_alias
from .._model.queue import Retention
from ..errors import InvalidOption, Refused
from .backoff import Backoff, Delay
from .secrets.encrypted import has_secret_fields

SAMPLED_ATTEMPTS = 16
"""Delays kept of a custom backoff."""

_DEFAULT = Backoff()
_NUMBERS = tuple(name for name in Backoff.__struct_fields__ if name != "max_attempts")


def declared_type(
    name: str, defaults: Defaults, backoff: Delay, *, aliases: tuple[str, ...], retention: Retention | None
) -> DeclaredType:
    """Return the record of a task type. Calls a custom backoff for its delays."""
    made = DeclaredType(name=name, defaults=defaults, aliases=aliases, retention=retention)
    if isinstance(backoff, Backoff):
        return replace(made, backoff={one: float(getattr(backoff, one)) for one in _NUMBERS})
    attempts = range(1, min(defaults.max_attempts, SAMPLED_ATTEMPTS + 1))
    return replace(made, delays=tuple(backoff(attempt, 0.5).total_seconds() for attempt in attempts))


def stored_backoff(declared: DeclaredType | None) -> Delay:
    """Return the delay between attempts of a type by its record; the default if there is none."""
    if declared is None:
        return _DEFAULT
    if declared.backoff:
        known = {name: number for name, number in declared.backoff.items() if name in _NUMBERS}
        try:
            return msgspec.convert(known, Backoff)
        except (msgspec.ValidationError, InvalidOption):  # of another version, with other bounds
            return _DEFAULT
    delays = declared.delays
    if not delays:
        return _DEFAULT
    return lambda attempt, _: timedelta(seconds=delays[min(attempt, len(delays)) - 1])


def check_encrypted(declared: DeclaredType | None, secret: tuple[str, ...]) -> None:
    """Raise Refused if a type's secret fields must be encrypted. For programs without keys."""
    if declared is not None and declared.encrypted and has_secret_fields(secret):
        raise Refused(
            f"task type {declared.name!r} has secret fields that must be encrypted, and this program has no "
            f"encryption keys; set WINDLASS_ENCRYPTION_KEYS or WINDLASS_ENCRYPTION_KEY_FILE"
        )


def keeps_secrets(types: Sequence[DeclaredType], name: str, changed: DeclaredType | None) -> bool:
    """Whether tasks keep all secret fields after this type is stored with changes, or removed (None).

    Tasks follow a type by its name or an alias, so each of these keeps its secret fields, and stays encrypted
    if it is. The former record does so by itself, as another one with the same names may be removed at once.
    """
    former = [one for one in types if one.name == name]
    others = [one for one in types if one.name != name]
    changes = [] if changed is None else [changed]
    own = by_name_or_alias(changes)
    if any(_loses_secrets(one, own.get(known)) for known, one in by_name_or_alias(former).items()):
        return False
    after = by_name_or_alias([*others, *changes])  # last: it takes its aliases from the others
    return not any(_loses_secrets(one, after.get(known)) for known, one in by_name_or_alias(types).items())


def _loses_secrets(before: DeclaredType, after: DeclaredType | None) -> bool:
    if after is None:
        return bool(before.defaults.secret) or before.encrypted
    return bool({*before.defaults.secret} - {*after.defaults.secret}) or (
        before.encrypted and not after.encrypted
    )


def changes(before: DeclaredType, after: DeclaredType) -> list[str]:
    """List what differs between two declarations, as "queue 'a' -> 'b'", for people.

    The delays of a custom backoff are left out: it may return others each time.
    """
    old, new = ({**asdict(one.defaults), **_own(one)} for one in (before, after))
    return [f"{name} {old[name]!r} -> {new[name]!r}" for name in new if old[name] != new[name]]


def _own(declared: DeclaredType) -> dict[str, object]:
    names = ("aliases", "backoff", "retention", "encrypted")
    return {name: getattr(declared, name) for name in names}
