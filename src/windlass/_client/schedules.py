"""Schedules: declare them, list them, and change them while workers run."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Unpack, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from .._encryption.encrypted_store import keyring_of
from .._handler.spec import HandlerSpec
from .._handler.task_types import TaskTypes
from .._ids import new_id
from .._model.filter import By, Filter, Page, Trigger
from .._model.options import DeclaredType, Options, by_name_or_alias
from .._model.record import Declaration
from .._model.schedule import Schedule, ScheduleOptions, ScheduleTiming, Tick
from .._model.task import Enqueued, Task, TaskId
from .._policy.input.chain import Step, all_secret, decode_steps
from .._policy.input.new_task import later_step
from .._policy.input.quote import quoted, suggestion
from .._policy.schedule import new_schedule, same_rule, tick_key, triggered_task
from .._policy.secrets.encrypted import refuse_marked
from .._policy.secrets.fields import merged
from .._policy.secrets.shown import secrets_of
from .._policy.ticks import newest, next_tick, overdue, ticks
from .._store.protocol import Store
from ..errors import DuplicateTask, InvalidOption, NotFound, Refused
from .builder import TaskBuilder, encoded_payload
from .declarations import digest_of
from .published_types import KnownTypes
from .records import audit_reveal, change_record, list_records

MAX_UPCOMING = 1_000
MAX_PAST = 100
MAX_LOOK_BACK = timedelta(days=366)
"""How far back past ticks are listed."""


class ScheduleStatus(Struct, frozen=True, kw_only=True):
    """A schedule and its ticks. `next_at` is None while it is paused, or if there is no further tick."""

    schedule: Schedule
    next_at: datetime | None = None
    last_at: datetime | None = None  # of the last tick that was fired
    task_id: TaskId | None = None  # of that tick
    error: str | None = None  # why its next tick cannot be computed
    late: timedelta = timedelta(0)  # since its first unfired tick was due


class PastTick(Struct, frozen=True, kw_only=True):
    """A tick that has passed, and the task that it became.

    None: the tick was skipped or missed, the schedule was paused, or the task has been pruned.
    """

    at: datetime
    task: Task | None


class Schedules:
    """List, add, pause, trigger and remove schedules: `app.operator.schedules`.

    The keeper that leads notices changes within seconds.
    """

    def __init__(self, store: Store, by: By | None = None, types: KnownTypes | None = None) -> None:
        self._store = store
        self._types = types or KnownTypes(store, TaskTypes())
        self._by = by  # for the audit log; None: a program, whose changes are not recorded

    async def list(self) -> Sequence[ScheduleStatus]:
        """List all schedules, by name."""
        schedules = await self._types.with_secrets(await list_records(self._store, Schedule))
        reached = {tick.name: tick for tick in await list_records(self._store, Tick)}
        now = await self._store.now()
        return [_status(schedule, reached.get(schedule.name), now) for schedule in schedules]

    async def get(self, name: str) -> ScheduleStatus:
        """Return a schedule; raises NotFound if there is none."""
        found = await self.list()
        for one in found:
            if one.schedule.name == name:
                return one
        names = [one.schedule.name for one in found]
        hint = suggestion(str(name)[:200], names, "`windlass schedules list` shows all schedules")
        raise NotFound(f"there is no schedule {quoted(name)}{hint}")

    async def reveal(self, name: str) -> ScheduleStatus:
        """Return a schedule to show its secrets, and record that in the audit log. Raises NotFound."""
        status = await self.get(name)
        await audit_reveal(self._store, self._by, f"schedule {name}")
        return status

    async def add(
        self,
        name: str,
        type: str,
        rule: timedelta | float | str,
        payload: Mapping[str, Any] | None = None,
        *,
        instead: bool = False,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Add a schedule for a type that need not be declared here; its first tick is the next one.

            await app.operator.schedules.add("nightly", "shop.report", "0 3 * * *", {"kind": "full"})

        See `App.schedule` for `rule` and the timing. `queue`, `tenant`, `priority`, `max_attempts`,
        `timeout`, `expires` (a duration) and `secret` are those of its tasks [default: as an app has
        published the type].
        `instead` replaces a schedule of the same name. Raises Refused if the name is taken, InvalidOption.
        """
        spec = self._types.declared.find(type)
        made = await self.make(name, type, rule, encoded_payload(payload or {}, spec), **options)
        return await self.put(made, instead=instead)

    async def make(
        self,
        name: str,
        type: str,
        rule: timedelta | float | str,
        payload: bytes,
        spec: HandlerSpec | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Build a schedule from an encoded payload; store nothing.

        Its tasks have the defaults that `spec` declares, or else those that an app has published. Raises
        InvalidOption, also for a misspelt `secret` of a type that is declared here.
        """
        self._types.check_secret(type, options)
        return await self._made(name, type, rule, payload, spec, **options)

    async def _made(
        self,
        name: str,
        type: str,
        rule: timedelta | float | str,
        payload: bytes,
        spec: HandlerSpec | None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Do the same for secret fields that are checked, or stored so."""
        _check(options, ScheduleOptions.__annotations__)
        given: dict[str, Any] = {**options}
        timing: Any = {key: given.pop(key) for key in ScheduleTiming.__annotations__ if key in given}
        published = by_name_or_alias(await list_records(self._store, DeclaredType)).get(type)
        defaults = (spec or published or DeclaredType(name=type)).defaults
        defaults = replace(defaults, secret=merged(defaults.secret, self._types.secret_of(type)))
        task_options = cast("Options", given)
        step = later_step(TaskBuilder().step(type, payload, task_options, defaults), task_options, None)
        return new_schedule(name, step, rule, timing)

    async def put(self, schedule: Schedule, *, instead: bool = False) -> Schedule:
        """Add a schedule that is already built; one of the same name that is paused stays paused.

        Raises Refused if its secret fields must be encrypted and this program has no keys.
        """
        await self._store.open()
        refuse_marked(schedule.payload, schedule.next)
        if secrets_of(schedule):
            await self._types.refresh()
            self._types.check_keys(schedule)
        now = await self._store.now()

        def change(existing: Schedule | None) -> Schedule:
            if existing is None:
                return replace(schedule, since=now, paused=False)
            if not instead:
                raise Refused(
                    f"there is already a schedule {schedule.name!r}; replace it (instead=True, --replace), "
                    f"or choose another name"
                )
            since = existing.since if same_rule(existing, schedule) else None
            return replace(schedule, since=since or now, paused=existing.paused)

        return await change_record(self._store, Schedule, schedule.name, change, self._by)

    async def change(
        self,
        name: str,
        rule: timedelta | float | str | None = None,
        payload: bytes | None = None,
        spec: HandlerSpec | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Change a schedule: its rule, its encoded payload, and the given options. The others stay.

            await app.operator.schedules.change("nightly", "0 4 * * *", zone="Europe/Berlin")

        With another rule, its first tick is the next one. Raises NotFound or InvalidOption.
        """
        stored = (await self.get(name)).schedule
        return await self.put(await self.changed(stored, rule, payload, spec, **options), instead=True)

    async def changed(
        self,
        schedule: Schedule,
        rule: timedelta | float | str | None = None,
        payload: bytes | None = None,
        spec: HandlerSpec | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Build what `change` makes of a schedule; store nothing."""
        self._types.check_secret(schedule.type, options)
        present: Any = {option: getattr(schedule, option) for option in ScheduleOptions.__annotations__}
        made = await self._made(
            schedule.name,
            schedule.type,
            rule or schedule.every or schedule.cron or "",
            schedule.payload if payload is None else payload,
            spec,
            **{**present, **options},
        )
        kept = {field: getattr(schedule, field) for field in ("unique", "unique_for", "next", "declared")}
        return replace(made, **kept)

    async def pause(self, name: str) -> None:
        """Pause a schedule: ticks until it is resumed are dropped. Raises NotFound if there is none."""
        await self._change(name, lambda schedule: replace(schedule, paused=True))

    async def resume(self, name: str) -> None:
        """Resume a paused schedule with its next tick; raises NotFound if there is none."""
        await self._store.open()
        now = await self._store.now()
        await self._change(
            name, lambda schedule: replace(schedule, paused=False, since=now) if schedule.paused else schedule
        )

    async def _change(self, name: str, change: Callable[[Schedule], Schedule]) -> None:
        await self.get(name)

        def change_stored(stored: Schedule | None) -> Schedule:
            if stored is None:
                raise NotFound(f"the schedule {quoted(name)} was removed meanwhile")
            return change(stored)

        await change_record(self._store, Schedule, name, change_stored, self._by)

    async def trigger(self, name: str, *, idempotency_key: str | None = None) -> TaskId:
        """Enqueue a schedule's task now and return its id. Works while it is paused; its ticks do not change.

        `idempotency_key`: a repeat within 7 days returns the id of the first task and enqueues none. Keys of
        triggers are separate for each schedule, and from those of tasks.

        Raises NotFound if there is none, DuplicateTask if its tasks must not overlap and one has not ended.
        """
        return (await self.trigger_once(name, idempotency_key)).id

    async def trigger_once(self, name: str, idempotency_key: str | None = None) -> Enqueued:
        """Do the same; the answer also says whether a task was created."""
        schedule = (await self.get(name)).schedule
        who = None if self._by is None else self._by.who
        task = triggered_task(schedule, new_id, who, idempotency_key)
        try:
            (enqueued,) = await self._store.enqueue([task])
        except DuplicateTask as error:
            if schedule.unique:
                raise
            raise DuplicateTask(
                f"task {error.standing} of the schedule {name!r} has not ended, and its tasks must not "
                f"overlap; wait for it or cancel it",
                standing=error.standing,
            ) from None
        if enqueued.created and self._by is not None:
            trigger = Trigger(by=self._by, schedule=name)
            await self._store.apply(trigger, Filter(ids=(enqueued.id,)), 1)
        return enqueued

    async def remove(self, name: str) -> None:
        """Remove a schedule; tasks that it has enqueued stay. Raises NotFound if there is none."""
        await self.get(name)
        await self._store.remove(Schedule, name, self._by)
        await self._store.remove(Tick, name)

    async def upcoming(self, name: str, number: int = 5) -> Sequence[datetime]:
        """List the next ticks of a schedule, 1 to 1,000, as if it were not paused."""
        if not 1 <= number <= MAX_UPCOMING:
            raise InvalidOption(f"number must be from 1 to {MAX_UPCOMING:,} ticks, got {number:,}")
        schedule = (await self.get(name)).schedule
        return [*islice(ticks(schedule, await self._store.now()), number)]

    async def past(self, name: str, number: int = 5) -> Sequence[PastTick]:
        """List the last ticks of a schedule, newest first, 1 to 100, and what became of them.

        Ticks before the schedule was added or last resumed are left out.
        """
        if not 1 <= number <= MAX_PAST:
            raise InvalidOption(f"number must be from 1 to {MAX_PAST} ticks, got {number:,}")
        schedule, now = (await self.get(name)).schedule, await self._store.now()
        since = now - MAX_LOOK_BACK if schedule.since is None else max(schedule.since, now - MAX_LOOK_BACK)
        found = []
        for tick in reversed(newest(schedule, since, now, number)):
            where = Filter(idempotency_key=tick_key(schedule, tick), types=(schedule.type,))
            tasks = (await self._store.find(where, Page(limit=1))).items
            found.append(PastTick(at=tick, task=tasks[0] if tasks else None))
        return found


class DeclaredSchedules:
    """The schedules that a program declares.

    One is stored when it is new or its declaration has changed; until then an operator's changes stay. One
    that is paused stays paused.
    """

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}

    @property
    def names(self) -> frozenset[str]:
        """The names of the declared schedules."""
        return frozenset(self._schedules)

    def add(self, name: str, step: Step, rule: timedelta | float | str, timing: ScheduleTiming) -> None:
        """Declare a schedule; raises InvalidOption if it is invalid or the name is taken by another."""
        _check(timing, ScheduleTiming.__annotations__)
        schedule = new_schedule(name, step, rule, timing, declared=True)
        if self._schedules.setdefault(name, schedule) != schedule:
            raise InvalidOption(f"the schedule {name!r} is already declared on this app; choose another name")

    async def publish(self, store: Store) -> None:
        """Store what is new or has changed. Schedules that other programs declared stay as they are."""
        if not self._schedules:
            return
        published = set(await list_records(store, Declaration))
        schedules = Schedules(store)
        for schedule in self._schedules.values():
            declaration = Declaration(name=f"schedule/{schedule.name}", body=_digest(store, schedule))
            if declaration not in published:
                await schedules.put(schedule, instead=True)
                await store.put(declaration)


def _digest(store: Store, schedule: Schedule) -> str:
    """Return the digest of a declared schedule: made with a key if it has secrets and there are keys."""
    fields = asdict(schedule)
    del fields["fingerprint"]  # follows from the others
    digest, keyring = digest_of(fields), keyring_of(store)
    has_secrets = bool(schedule.secret) or bool(all_secret(decode_steps(schedule.next)))
    return digest if keyring is None or not has_secrets else keyring.keyed(digest)


def _status(schedule: Schedule, tick: Tick | None, now: datetime) -> ScheduleStatus:
    error = next_at = None
    late = timedelta(0)
    try:
        next_at, late = next_tick(schedule, now), overdue(schedule, tick, now)
    except InvalidOption as found:
        error = str(found)
    return ScheduleStatus(
        schedule=schedule,
        next_at=None if schedule.paused else next_at,
        last_at=None if tick is None else tick.fired_at,
        task_id=None if tick is None else tick.task_id,
        error=error,
        late=late,
    )


def _check(options: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Raise InvalidOption for a name that is no option, with the one that was probably meant."""
    for given in options:
        if given not in known:
            hint = suggestion(given, known, f"the options are {', '.join(known)}")
            if given in ScheduleOptions.__annotations__:
                hint = f"; it is an option of the task: use .using({given}=…).step(…)"
            raise InvalidOption(f"a schedule has no option {given!r}{hint}")
