"""Encryption of secret fields: rotate the keys of what is stored, and check what it is encrypted with."""

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from .._encryption.encrypted_store import encrypted_store, key_ids_of
from .._model.filter import By, Filter, Page
from .._model.limit import Limit
from .._model.options import DeclaredType
from .._policy.input.quote import counted
from .._policy.order.limit_options import check_encrypted_field
from .._policy.secrets.encrypted import key_ids
from .._store.protocol import Finding, Severity, Store
from ..errors import InvalidOption
from .records import list_records

_BATCH = 500  # tasks that one step reads and rewrites
MAX_CHECKED = 5_000
"""Tasks that `check` reads, the newest."""


class Rotation(Struct, frozen=True, kw_only=True):
    """How far a rotation has come. `locked` tasks have values that no key of this program decrypts."""

    read: int = 0
    rewritten: int = 0
    locked: int = 0
    schedules: int = 0  # rewritten
    cursor: str | None = None  # where to go on; None: at the end


class Encryption:
    """Rotate the keys of encrypted fields: `app.operator.encryption`."""

    def __init__(self, store: Store, by: By) -> None:
        self._store = store
        self._by = by

    async def rotate(
        self, *, after: str | None = None, report: Callable[[Rotation], None] | None = None
    ) -> Rotation:
        """Encrypt all stored secret fields with the first key, also those that were not encrypted.

        It takes steps of 500 tasks: stopped at any time and called again, it skips what is done. `after`: the
        `cursor` of an earlier rotation, to go on behind it. `report` is called after each step. Programs that
        still have another first key must be restarted before. Raises InvalidOption without keys.
        """
        await self._store.open()
        store = encrypted_store(self._store)
        if store is None:
            raise InvalidOption(
                "there are no encryption keys; set WINDLASS_ENCRYPTION_KEYS or WINDLASS_ENCRYPTION_KEY_FILE"
            )
        done = Rotation(schedules=await store.rotate_schedules(self._by), cursor=after)
        while True:
            step = await store.rotate_tasks(Page(limit=_BATCH, cursor=done.cursor), self._by)
            done = replace(
                done,
                read=done.read + step.read,
                rewritten=done.rewritten + step.rewritten,
                locked=done.locked + step.locked,
                cursor=step.cursor,
            )
            if report is not None:
                report(done)
            if step.cursor is None:
                return done

    async def check(self) -> Sequence[Finding]:
        """Report the keys that the newest 5,000 tasks need and this program lacks, or should rotate."""
        types = [one for one in await list_records(self._store, DeclaredType) if one.encrypted]
        encrypted = [one.name for one in types]
        known, wrapper = key_ids_of(self._store), encrypted_store(self._store)
        if wrapper is None and not encrypted:
            return ()
        store = self._store if wrapper is None else wrapper.inner
        needed: Counter[str] = Counter()
        page = Page(limit=_BATCH, newest_first=True)
        for _ in range(MAX_CHECKED // _BATCH):
            found = await store.find(Filter(), page)
            needed.update(key for one in found.items for key in key_ids(one.payload, one.next, one.result))
            if found.cursor is None:
                break
            page = replace(page, cursor=found.cursor)
        return [*_findings(known, encrypted, needed), *await self._limits_by_ciphertext(types)]

    async def _limits_by_ciphertext(self, types: Sequence[DeclaredType]) -> Sequence[Finding]:
        """Report limits that were set before the field that they count by was encrypted."""
        findings = []
        for limit in await list_records(self._store, Limit):
            try:
                check_encrypted_field(limit, types)
            except InvalidOption as error:
                findings.append(_warning(f"{error}: as the field is encrypted, it limits nothing"))
        return findings


def _findings(known: tuple[str, ...], encrypted: Sequence[str], needed: "Counter[str]") -> Sequence[Finding]:
    findings = []
    if not known:
        names = ", ".join(encrypted)
        findings.append(_warning(f"there are no keys here, and secret fields of {names} are encrypted"))
    for key, number in sorted(needed.items()):
        tasks = f"{counted(number, 'task')} of the newest {MAX_CHECKED:,}"
        if key not in known:
            findings.append(_warning(f"key {key} is missing here; values of {tasks} need it"))
        elif key != known[0]:
            findings.append(
                _warning(f"values of {tasks} need the former key {key}; run `windlass encryption rotate`")
            )
    if known and not findings:
        message = f"secret fields are encrypted with key {known[0]}"
        findings.append(Finding(severity=Severity.OK, subject="encryption", message=message))
    return findings


def _warning(message: str) -> Finding:
    return Finding(severity=Severity.WARNING, subject="encryption", message=message)
