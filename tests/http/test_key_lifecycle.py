"""API keys over HTTP from creation to revocation: repeats, rotation, last use, and the server without any."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from msgspec.structs import replace

from tests.http.api_client import Api
from tests.http.problem import problem
from tests.loops.workers import eventually
from tests.servers.api import ApiServer
from windlass import App
from windlass._client.keys import Keys
from windlass._http import auth
from windlass._http.server.run import CLOSED, KEYLESS, new_server
from windlass._model.filter import Page
from windlass._model.key import ApiKey, Scope
from windlass._model.record import Audit
from windlass._policy import api_key
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import ManualClock
from windlass.testing.faults import Fault, FaultyStore, scripted

NEW = {"label": "ci", "scopes": ["enqueue", "read"], "tenant": "acme", "expires_in": 3600}


@pytest.fixture
def always_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server reads the keys for every request."""
    monkeypatch.setattr(auth, "FRESH_FOR", 0.0)


@pytest.fixture
async def admin(http: httpx2.AsyncClient, url: str, keys: Keys, always_looking: None) -> Api:
    return Api(http, url, (await keys.create("root", scopes=[Scope.ADMIN])).text)


async def lines(store: Store) -> list[tuple[str, str]]:
    return [(line.action, line.subject) for line in (await store.records(Audit, Page())).items]


class TestIdempotentCreation:
    async def test_a_repeat_creates_no_second_key(self, admin: Api, keys: Keys, store: MemoryStore) -> None:
        made = await admin.good("POST", "/keys", NEW, idempotency_key="deploy-7")
        for quoted in ("deploy-7", '"deploy-7"'):
            found = problem(await admin("POST", "/keys", NEW, idempotency_key=quoted), 409, "duplicate-key")
            assert found["standing"] == made["id"]
            assert made["key"] not in str(found)
        assert len(await keys.list(inactive=True)) == 2
        assert await lines(store) == [("create", f"key {made['id']}")]

        rotated = await admin.good("POST", f"/keys/{found['standing']}/rotate", {"overlap": 0})
        assert (await admin.by(rotated["key"])("GET", "/tasks")).status_code == 200

    async def test_another_request_with_it_is_refused(self, admin: Api, keys: Keys) -> None:
        made = await admin.good("POST", "/keys", NEW, idempotency_key="k")
        for changes in ({"label": "x"}, {"scopes": ["admin"]}, {"tenant": "bob"}, {"expires_in": 60}):
            refused = await admin("POST", "/keys", {**NEW, **changes}, idempotency_key="k")
            assert problem(refused, 422, "idempotency-conflict")["standing"] == made["id"]
        assert len(await keys.list(inactive=True)) == 2

    async def test_a_repeat_after_revocation_does_not_bring_it_back(self, admin: Api) -> None:
        made = await admin.good("POST", "/keys", NEW, idempotency_key="k")
        await admin.good("DELETE", f"/keys/{made['id']}")
        problem(await admin("POST", "/keys", NEW, idempotency_key="k"), 409, "duplicate-key")
        assert (await admin.by(made["key"])("GET", "/tasks")).status_code == 401

    async def test_the_id_tells_nothing_of_the_secret(self, admin: Api) -> None:
        made = await admin.good("POST", "/keys", NEW, idempotency_key="k")
        sent = api_key.parse_key(made["key"])
        assert sent is not None
        assert sent.id == api_key.id_from("k")
        assert sent.secret not in (api_key.new_key(api_key.id_from("k").encode() * 4).secret, sent.id)
        assert len({(await admin.good("POST", "/keys", NEW))["id"] for _ in range(3)}) == 3

    async def test_of_many_at_once_one_creates_it(self, kept: Store) -> None:
        made = await asyncio.gather(
            *(Keys(kept).create("ci", scopes=["read"], idempotency_key="k") for _ in range(8)),
            return_exceptions=True,
        )
        assert sum(not isinstance(one, Exception) for one in made) == 1
        assert len(await Keys(kept).list()) == 1

    @pytest.mark.parametrize("key", ["", "x" * 300])
    async def test_what_is_no_idempotency_key(self, key: str, admin: Api) -> None:
        problem(await admin("POST", "/keys", NEW, idempotency_key=key), 422, "invalid-option")


class TestRotation:
    async def test_both_secrets_are_valid_until_the_overlap_ends(
        self, api: ApiServer, http: httpx2.AsyncClient, always_looking: None
    ) -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        admin = Api(http, api.serve(store), (await Keys(store).create("root", scopes=["admin"])).text)
        old = await admin.good("POST", "/keys", {**NEW, "expires_in": 7200})
        new = await admin.good("POST", f"/keys/{old['id']}/rotate", {"overlap": 60, "why": "leaked"})

        assert new["key"] != old["key"]
        assert {name for name in old if old[name] != new[name]} == {"key", "rotated_at", "former_expires_at"}
        statuses = []
        for seconds in (0, 59, 1, 7140):
            clock.advance(seconds)
            both = [(await admin.by(one["key"])("GET", "/tasks")).status_code for one in (old, new)]
            statuses.append(both)
        assert statuses == [[200, 200], [200, 200], [401, 200], [401, 401]]
        assert await lines(store) == [("create", f"key {old['id']}"), ("rotate", f"key {old['id']}")]

    async def test_without_overlap_the_former_ends_at_once(self, admin: Api) -> None:
        old = await admin.good("POST", "/keys", NEW)
        new = await admin.good("POST", f"/keys/{old['id']}/rotate", {"overlap": 0})
        assert [(await admin.by(one["key"])("GET", "/tasks")).status_code for one in (old, new)] == [401, 200]

    async def test_a_day_is_the_default(self, admin: Api) -> None:
        old = await admin.good("POST", "/keys", {**NEW, "expires_in": 604800})
        new = await admin.good("POST", f"/keys/{old['id']}/rotate")
        ends, at = (datetime.fromisoformat(new[name]) for name in ("former_expires_at", "rotated_at"))
        assert ends - at == timedelta(hours=24)

    async def test_what_cannot_be_rotated(self, admin: Api, keys: Keys, store: MemoryStore) -> None:
        made = [await keys.create("k", scopes=["read"]) for _ in range(2)]
        await keys.revoke(made[0].key.name)
        await store.put(replace(made[1].key, expires_at=made[1].key.created_at))
        for one in made:
            problem(await admin("POST", f"/keys/{one.key.name}/rotate"), 409, "refused")
        problem(await admin("POST", "/keys/nobody/rotate"), 404, "not-found")
        problem(await admin("POST", "/keys/nobody/rotate", {"overlap": -1}), 422, "invalid-request")

    async def test_no_secret_is_in_the_log_or_the_list(self, admin: Api, store: MemoryStore) -> None:
        made = await admin.good("POST", "/keys", NEW)
        rotated = await admin.good("POST", f"/keys/{made['id']}/rotate")
        (stored,) = (key for key in (await store.records(ApiKey, Page())).items if key.name == made["id"])
        shown = (await admin("GET", "/keys?all=true")).text + (await admin("GET", "/audit")).text
        for one in (made["key"], rotated["key"], stored.hash, stored.former[0].hash):
            assert one.rpartition("_")[2] not in shown


class TestRevocation:
    async def test_it_is_listed_only_among_all(self, admin: Api, store: MemoryStore) -> None:
        made = await admin.good("POST", "/keys", NEW)
        old = (await Keys(store).create("old", scopes=["read"])).key
        await store.put(replace(old, expires_at=old.created_at))
        await admin.good("DELETE", f"/keys/{made['id']}")

        listed = [
            {one["id"]: one for one in (await admin.good("GET", f"/keys{query}"))["items"]}
            for query in ("", "?all=false", "?all=true")
        ]
        assert [len(one) for one in listed] == [1, 1, 3]
        assert listed[2][made["id"]]["revoked_at"] is not None
        assert listed[2][old.name]["revoked_at"] is None

    async def test_a_server_that_had_keys_stays_closed_when_it_starts_again(
        self, kept: Store, api: ApiServer, http: httpx2.AsyncClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        keys = Keys(kept)
        assert await _warning(kept) == KEYLESS
        made = await keys.create("first", scopes=["admin"])
        assert await _warning(kept) == ""
        await keys.revoke(made.key.name)
        assert await _warning(kept) == CLOSED

        served = kept.another()
        has_keys = bool(await keys.list(inactive=True))
        url = api.serve(served, open_until_keys=not has_keys)
        problem(await http.get(f"{url}/tasks"), 401, "unauthorized")
        api.close(served)

    async def test_a_key_that_former_versions_stored_is_valid(
        self, api: ApiServer, http: httpx2.AsyncClient, store: MemoryStore
    ) -> None:
        sent = api_key.new_key(b"\x07" * 48)
        now = datetime.now(UTC)
        await store.put(
            ApiKey(
                name=sent.id,
                label="old",
                hash=api_key.hash_secret(sent.secret),
                scopes=(Scope.READ,),
                created_at=now,
            )
        )
        assert (await Api(http, api.serve(store), sent.text)("GET", "/tasks")).status_code == 200

    async def test_keys_that_ended_long_ago_are_removed_when_one_is_created(self) -> None:
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        keys = Keys(store)
        for label in ("revoked", "expired", "stays"):
            made = await keys.create(label, scopes=["read"], expires_in=60 if label == "expired" else None)
            if label == "revoked":
                await keys.revoke(made.key.name)
        clock.advance(api_key.KEEP_FOR)
        await keys.create("new", scopes=["read"])
        assert {key.label for key in await keys.list(inactive=True)} == {"revoked", "expired", "stays", "new"}
        clock.advance(61)
        await keys.create("newer", scopes=["read"])
        assert {key.label for key in await keys.list(inactive=True)} == {"stays", "new", "newer"}

    async def test_the_text_of_a_new_key_survives_a_failure_after_it_was_stored(self) -> None:
        store = MemoryStore()
        made = await Keys(FaultyStore(store, scripted(records=[Fault.BEFORE]))).create("k", scopes=["read"])
        assert await Keys(store).list() == [made.key]


async def _warning(store: Store) -> str:
    return (await new_server(App(store), host="127.0.0.1", insecure=False))._warning


class TestLastUse:
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def puts(self) -> list[str]:
        return []

    @pytest.fixture
    def used(self, clock: ManualClock) -> MemoryStore:
        return MemoryStore(clock=clock)

    @pytest.fixture
    async def own(
        self,
        used: MemoryStore,
        puts: list[str],
        api: ApiServer,
        http: httpx2.AsyncClient,
        always_looking: None,
    ) -> Api:
        key = (await Keys(used).create("k", scopes=["admin"])).text

        def plan(verb: str) -> None:
            if verb == "put":
                puts.append(verb)

        return Api(http, api.serve(FaultyStore(used, plan)), key)

    async def last_used(self, store: Store) -> datetime | None:
        (key,) = await Keys(store).list()
        return key.last_used_at

    def since(self, store: Store, at: datetime) -> Callable[[], object]:
        async def noted() -> bool:
            noted_at = await self.last_used(store)
            return noted_at is not None and at <= noted_at < at + timedelta(seconds=1)

        return noted

    async def test_it_is_noted_once_a_minute(
        self, own: Api, used: MemoryStore, clock: ManualClock, puts: list[str]
    ) -> None:
        assert await self.last_used(used) is None
        for minute in range(3):
            for _ in range(5):
                await own.good("GET", "/tasks")
            await eventually(self.since(used, clock.now()))
            first = clock.now()
            clock.advance(58)  # the server adds the time since it read the clock
            for _ in range(3):
                await own.good("GET", "/tasks")
            (listed,) = (await own.good("GET", "/keys"))["items"]
            assert datetime.fromisoformat(listed["last_used_at"]) < first + timedelta(seconds=1)
            assert len(puts) == minute + 1
            clock.advance(3)
        assert await lines(used) == []

    async def test_a_refused_key_is_not_used(self, own: Api, used: MemoryStore, puts: list[str]) -> None:
        near = own.by(own.headers["authorization"].removeprefix("Bearer ")[:-1] + "!")
        assert (await near("GET", "/tasks")).status_code == 401
        assert (await self.last_used(used), puts) == (None, [])

    async def test_a_lost_write_harms_nobody(
        self,
        api: ApiServer,
        http: httpx2.AsyncClient,
        used: MemoryStore,
        clock: ManualClock,
        always_looking: None,
    ) -> None:
        key = (await Keys(used).create("k", scopes=["admin"])).text
        own = Api(http, api.serve(FaultyStore(used, scripted(put=[Fault.BEFORE]))), key)
        await own.good("GET", "/tasks")
        await own.good("GET", "/tasks")
        clock.advance(61)
        await own.good("GET", "/tasks")
        await eventually(self.since(used, clock.now()))

    async def test_it_never_undoes_a_revocation_or_rotation(self, used: MemoryStore) -> None:
        keys = Keys(used)
        uses = auth.KeyUses(used)
        made = [await keys.create("k", scopes=["read"]) for _ in range(2)]
        for one in made:
            uses.note(one.key, used.clock.now())
        await keys.revoke(made[0].key.name)
        await keys.rotate(made[1].key.name)
        writing = uses._writing
        assert writing is not None
        await writing
        by_name = {key.name: key for key in await keys.list(inactive=True)}
        assert by_name[made[0].key.name].revoked_at is not None
        assert by_name[made[1].key.name].hash != made[1].key.hash

    async def test_what_is_remembered_is_bounded(
        self, used: MemoryStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(auth, "_MAX_NOTED", 3)
        uses = auth.KeyUses(used)
        key = (await Keys(used).create("k", scopes=["read"])).key
        for number in range(20):
            uses.note(replace(key, name=str(number)), key.created_at)
            assert len(uses._noted) <= 3
        assert uses._writing is not None
        await uses._writing
