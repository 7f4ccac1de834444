"""App: the declarations of a program, and the one place that chooses a store."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from ._app_declarations import AppDeclarations
from ._archive import Archiver
from ._client.builder import TaskBuilder
from ._client.client import Client, LoopThread
from ._client.operator import Operator
from ._client.published_types import KnownTypes, publish_types
from ._client.sync.client import SyncClient
from ._client.sync.operator import SyncOperator
from ._client.tasks.unserved import name_store
from ._encryption.encrypted_store import EncryptedStore
from ._encryption.keys import Keyring
from ._handler.hooks import ErrorHook
from ._handler.lifespan import Lifespans
from ._handler.spec import HandlerSpec, OnStuck, safe_backoff
from ._handler.task_types import TaskTypes
from ._ids import process_identity
from ._keeper.alerts import AlertNotifier
from ._keeper.keeper import Keeper
from ._model.filter import By
from ._model.lease import DEFAULT_LEASE
from ._model.options import Defaults
from ._model.queue import Retention
from ._model.task import DEFAULT_QUEUE
from ._observe.log_secrets import install_filter
from ._observe.observed_store import ObservedStore
from ._policy.addresses import Network, parse_networks
from ._policy.backoff import Backoff, Delay, checked_attempts
from ._policy.input.fingerprint import declared_unique
from ._policy.input.new_task import checked_expiry, checked_timeout
from ._policy.input.options import checked_name, checked_names, checked_sequence
from ._policy.input.quote import quoted
from ._policy.order.priority import parse_priority
from ._policy.other_queues import check_keywords
from ._policy.secrets.patterns import checked_patterns, patterns_of
from ._store.outage import Outage
from ._store.protocol import Store
from ._stores import migration_sql, open_owner, open_store, owned_urls, shards_of, store_name
from ._worker.process import run_process, run_to_end
from ._worker.settings import WorkerSettings
from ._worker.worker import Worker
from .alerts import AlertEvent, checked_secret
from .config import api_key, encryption_keys
from .errors import InvalidOption, InvalidPayload
from .tasktype import TaskDecorator, TaskType

if TYPE_CHECKING:
    from ._observe.metrics import Metrics
    from ._stores.jetstream.owner import Owner
    from ._stores.shards.admin import ShardAdmin

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_STORE = "sqlite:///windlass.db"


class App(AppDeclarations):
    """The task types, queues, limits, alerts and schedules of a program, and the store of its tasks.

        app = App("sqlite:///windlass.db")  # or postgresql://…, redis://…, https://…

    `store`: a URL, or a store object. `backoff`: the delay between attempts for types without one of their
    own. `retention`: how long ended tasks of its types are kept in queues without a retention of their own
    [default: 7 days; dead letters 14]. `secret`: names of payload fields that are never shown, for all types.
    `redact`: regular expressions whose matches are never shown or logged; see docs/concepts.md. `identity`:
    recorded on tasks as who enqueued them [default: program@host:pid]. `webhook_secret`: signs messages to
    alert webhooks. `archive`: directory for each day of history, written before it is pruned.
    `allow_addresses`: networks such as "10.0.0.0/8" that webhooks and ready-made handlers may reach though
    they are not public. `encryption`: the keys that secret fields are encrypted with, as text like that of
    WINDLASS_ENCRYPTION_KEYS [default: this variable, or WINDLASS_ENCRYPTION_KEY_FILE].

    Making an app and declaring on it opens nothing; the store is opened when it is first used.

    `client` and `sync_client` enqueue tasks and follow them; `operator` and `sync_operator` inspect the store
    and act on it. The sync ones block, the others are for async code.
    """

    def __init__(
        self,
        store: str | Store = DEFAULT_STORE,
        *,
        backoff: Delay | None = None,
        retention: Retention | None = None,
        secret: Iterable[str] = (),
        redact: Iterable[str] = (),
        identity: str | None = None,
        webhook_secret: str | None = None,
        archive: str | None = None,
        allow_addresses: Iterable[str] = (),
        encryption: str | Keyring | None = None,
    ) -> None:
        given = Keyring.parse(encryption) if isinstance(encryption, str) else encryption
        self.keyring = given or encryption_keys()
        self.store = ObservedStore(self._store_of(store))
        self.store_name, self._store_given = store_name(store), store
        name_store(self.store, self.store_name)
        super().__init__(TaskTypes())
        if retention is not None and not isinstance(retention, Retention):
            raise InvalidOption(f"retention must be a Retention, got {quoted(retention)}")
        self.retention = retention
        self.backoff: Delay = safe_backoff(Backoff() if backoff is None else backoff)
        self._secret = checked_names(secret, "secret")
        signing_key = None if webhook_secret is None else checked_secret(webhook_secret)
        self.alert_notifier = AlertNotifier(signing_key, parse_networks(allow_addresses))
        self.archiver = None if archive is None else Archiver(archive)
        self._closers: list[Callable[[], Awaitable[None]]] = []
        who = identity or process_identity()
        self._loop = LoopThread()
        self._metrics: Metrics | None = None
        self.builder = TaskBuilder(enqueued_by=who)
        known_types = KnownTypes(self.store, self.types, self._secret)
        self.client = Client(self.store, self.builder, known_types)
        self.operator = Operator(self.store, By(who=who), known_types)
        self.sync_client = SyncClient(self.client, self._loop)
        self.sync_operator = SyncOperator(self.operator, self._loop)
        self.add_redact(redact)

    # -- declare -----------------------------------------------------------------------------------

    @overload
    def task(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskType[P, Coroutine[Any, Any, R], R]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> TaskType[P, R, R]: ...
    @overload
    def task(
        self,
        /,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        queue: str = DEFAULT_QUEUE,
        priority: int | str = 0,
        timeout: timedelta | float | str | None = None,
        expires: timedelta | float | str | None = None,
        backoff: Delay | None = None,
        max_attempts: int | None = None,
        fatal: type[BaseException] | tuple[type[BaseException], ...] = (),
        unique: bool | Sequence[str] = False,
        unique_for: timedelta | float | str | None = None,
        secret: Iterable[str] = (),
        process: bool = False,
        on_stuck: OnStuck = "hold",
        schedule: timedelta | float | str | None = None,
        example: Mapping[str, Any] | None = None,
    ) -> TaskDecorator: ...

    def task(
        self,
        function: Any = None,
        /,
        *,
        name: str | None = None,
        aliases: Iterable[str] = (),
        queue: str = DEFAULT_QUEUE,
        priority: int | str = 0,
        timeout: timedelta | float | str | None = None,
        expires: timedelta | float | str | None = None,
        backoff: Delay | None = None,
        max_attempts: int | None = None,
        fatal: type[BaseException] | tuple[type[BaseException], ...] = (),
        unique: bool | Sequence[str] = False,
        unique_for: timedelta | float | str | None = None,
        secret: Iterable[str] = (),
        process: bool = False,
        on_stuck: OnStuck = "hold",
        schedule: timedelta | float | str | None = None,
        example: Mapping[str, Any] | None = None,
        **unknown: Any,
    ) -> Any:
        """Declare a function as a task type. The function may be async or not, and can still be called.

            @app.task(queue="mail", timeout=30)
            def welcome(user_id: int) -> None: ...

        `name`: the type's name [default: module.function]. `aliases`: its former names. `queue`: of its
        tasks. `priority`: -100 to 100, or "high", "medium", "low". `timeout`: of an attempt, like 30 or "5m"
        [default: none]. `expires`: a task that has not started this long after it was due never does
        [default: never]. `backoff`: the delay between attempts [default: the app's]. `max_attempts`: 1 to
        10,000 [default: the backoff's]. `fatal`: exceptions after which the task is dead at once. `unique`:
        refuse a task (DuplicateTask) while one with the same payload and priority, or the same values of the
        parameters that it names, has not ended. `unique_for`: and for this time after its enqueue. `secret`:
        payload fields that are never shown. `process`: run in a child process. `on_stuck`: "replace" takes
        the slot from a `def` handler that overruns its timeout. `schedule`: cron or an interval; a tick
        enqueues a task without arguments. `example`: a payload, for OpenAPI. Raises InvalidOption.
        """
        check_keywords(self.task, unknown)
        delay = self.backoff if backoff is None else backoff
        is_unique, period = declared_unique(unique, unique_for)
        defaults = Defaults(
            queue=checked_name(queue, "queue"),
            priority=parse_priority(priority),
            max_attempts=checked_attempts(max_attempts, delay),
            timeout=checked_timeout(timeout),
            expires=checked_expiry(expires),
            unique=is_unique,
            unique_for=period,
            secret=self._secret,
        )
        old, own = checked_names(aliases, "aliases"), checked_names(secret, "secret")
        spec = partial(HandlerSpec, name=name, defaults=defaults, example=example, fatal=fatal)

        def declare(handler: Callable[..., Any]) -> TaskType[Any, Any, Any]:
            made = spec(handler, aliases=old, secret=own, backoff=delay, process=process, on_stuck=on_stuck)
            return self._declare(made, schedule)

        return declare if function is None else declare(function)

    def _declare(self, spec: HandlerSpec, rule: timedelta | float | str | None) -> TaskType[Any, Any, Any]:
        self.types.check(spec)
        made: TaskType[Any, Any, Any] = TaskType(spec, spec.handler, self)
        if rule is not None:
            self._declare_own_schedule(made, rule)
        self.types.add(spec)
        return made

    def _declare_own_schedule(self, made: TaskType[Any, Any, Any], rule: timedelta | float | str) -> None:
        try:
            step = made.step()
        except InvalidPayload as error:
            raise InvalidOption(
                f"{error}; `schedule=` enqueues tasks without arguments: give the parameter a default, or "
                f"declare the schedule with app.schedule({made.name!r}, step, rule), where the step has them"
            ) from None
        self.schedule(made.name, step, rule)

    def on_alert(self, listener: Callable[[AlertEvent], None]) -> Callable[[AlertEvent], None]:
        """Call this function with each alert event, in the worker that leads. It must not block."""
        self.alert_notifier.listeners.append(listener)
        return listener

    def on_close(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call this when the app is closed, before its store: for connections that handlers keep open."""
        self._closers.append(close)

    def add_redact(self, patterns: Iterable[str]) -> None:
        """Mask what these patterns match, too, in tasks of all types. Raises InvalidOption."""
        added = checked_patterns(checked_sequence(patterns, "redact", "patterns"), self.redact)
        self._secret = (*self._secret, *added)
        self.client.types.add_secret(added)

    @property
    def redact(self) -> tuple[str, ...]:
        """The regular expressions whose matches are never shown or logged."""
        return patterns_of(self._secret)

    @property
    def allowed_networks(self) -> tuple[Network, ...]:
        """The networks that requests may be sent to though they are not public."""
        return self.alert_notifier.fetcher.allowed

    def declared(self, type_name: str) -> HandlerSpec:
        """Return the declaration of a task type; raises UnknownTaskType if this app has none of that name."""
        return self.types.declared(type_name)

    # -- run -------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect to the store and publish what is declared, as workers do; clients only connect."""
        await self.store.open()
        await self.publish()

    async def __aenter__(self) -> Self:
        """Open it for a block, such as the lifespan of a web application; raises StoreUnavailable."""
        try:
            await self.open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self.close()

    async def publish(self) -> None:
        """Write to the store what is declared and new or changed."""
        await self._declarations.publish(self.store, self.types)
        await publish_types(self.store, self.types.values(), self.retention)
        await self.schedules.publish(self.store)

    def use_store(self, store: str | Store) -> Store:
        """Use another store from now on; returns the one used so far, which stays open. For tests."""
        self.store_name, self._store_given = store_name(store), store
        name_store(self.store, self.store_name)
        self.client.types.forget()
        return self.store.swap(self._store_of(store))

    def use_keyring(self, keyring: Keyring) -> None:
        """Encrypt secret fields with these keys from now on, instead of those it was made with."""
        store = self.store.inner
        self.keyring = keyring
        self.store.swap(self._store_of(store.inner if isinstance(store, EncryptedStore) else store))

    def _store_of(self, store: str | Store) -> Store:
        opened = open_store(store, key=api_key()) if isinstance(store, str) else store
        if self.keyring is None or isinstance(opened, EncryptedStore):
            return opened
        return EncryptedStore(opened, self.keyring)

    def metrics(self) -> "Metrics":
        """Return the metrics of this program for Prometheus; counting starts with the first call.

            body, content_type = await app.metrics().exposition(request.headers.get("Accept"))

        Raises InvalidOption unless windlass[metrics] is installed. See docs/metrics.md.
        """
        if self._metrics is None:
            try:
                self._metrics = import_module("windlass._observe.metrics").Metrics(self.store)
            except ModuleNotFoundError as missing:
                raise InvalidOption("metrics need an extra: pip install 'windlass[metrics]'") from missing
        return self._metrics

    async def close(self) -> None:
        """Close the store, and what handlers keep open. Using the app afterwards opens it again."""
        for close in self._closers:
            await close()
        await self.store.close()

    def setup(self) -> None:
        """Do what `open` does, blocking. A new database gets its schema."""
        self._loop.run(self.open())

    @property
    def owned_urls(self) -> tuple[str, ...]:
        """URLs of the store, or of its shards, that are on NATS: of each, a process must be the owner."""
        return owned_urls(self._store_given)

    def owner(self, folder: str | Path, *, if_fewer_than: int | None = None) -> "Owner":
        """Make an owner of a store on NATS; `await owner.run()` owns it or stands by until `owner.stop()`.

        Its copy of the store is in `folder`, and may be lost. With `if_fewer_than` it waits while so many
        processes own the store or stand by. Raises NotSupported unless the store needs one.
        See docs/jetstream.md.
        """
        return open_owner(self._store_given, Path(folder), if_fewer_than=if_fewer_than)

    def migration_sql(self, start: int = 0, target: int | None = None) -> str:
        """Return the SQL that migrates the store's schema from `start` (0: none) to `target` (None: newest).

        Connects to nothing. Raises NotSupported unless the store is on Postgres. See docs/stores.md.
        """
        return migration_sql(self._store_given, start, target)

    def shards(self) -> "ShardAdmin":
        """Return what changes the shards of this app's store. Raises NotSupported if it has none."""
        return shards_of(self.store)

    def worker(
        self,
        settings: WorkerSettings | None = None,
        *,
        on_error: ErrorHook | None = None,
        lifespans: Lifespans | None = None,
    ) -> Worker:
        """Make a worker for this app's task types; `await worker.run()` works until `worker.stop()`.

            async with app, app.worker():  # in the lifespan of a web application
                yield

        `on_error`: an error hook of this worker, besides those of the app. `lifespans`: those of the app, if
        the caller has started them and ends them.
        """
        return Worker(
            self.store,
            self.client.types,
            settings or WorkerSettings(),
            self.open,
            self.backoff_of,
            self.keeper,
            self.hooks if on_error is None else self.hooks.with_error_hook(on_error),
            self.hooks.lifespans() if lifespans is None else lifespans,
        )

    def keeper(
        self, *, name: str = "", lease: timedelta = DEFAULT_LEASE, outage: Outage | None = None
    ) -> Keeper:
        """Make a keeper for this app's store; `await keeper.run()` does its chores until it is cancelled.

        Workers and `windlass serve` run one each; the store lets one of them lead. `lease`: of workers whose
        own is not known. `name`: shown among the workers. `outage`: shared with the worker that runs it.
        """
        return Keeper(
            self.store,
            lease=lease,
            name=name,
            notifier=self.alert_notifier,
            outage=outage,
            archiver=self.archiver,
            recorder=self.store.history,
        )

    def backoff_of(self, type_name: str) -> Delay:
        """Return the delay between attempts that a type declares, or else the app's."""
        spec = self.types.find(type_name)
        return self.backoff if spec is None else spec.backoff

    def run_worker(self, settings: WorkerSettings | None = None) -> None:
        """Run as a worker process, like `windlass worker`: until SIGTERM or SIGINT, then close the store."""
        install_filter(self.redact)
        worker = self.worker(settings)
        run_process(lambda: run_to_end(worker, self.store), self.close)
