"""Payloads: any JSON is returned byte for byte, and its size is counted."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from ..._ids import new_id
from ..._model.filter import Count, Dimension, Filter, Page
from ..._model.lease import Claimed
from ..._model.state import State
from ..._model.task import Error
from ..._policy.input.chain import Step, encode_steps, successors
from ...errors import InvalidOption
from .steps import EVERYTHING, ManualWorker, StoreTest, a_task, bury, complete

HOSTILE = [
    "",
    "'; DROP TABLE task; --",
    "\\",
    '"',
    "%s %(x)s {} ${x} ?1 :a @b $1",
    "\u2028\u2029\x7f\x85\ufeff\ufffe",
    "🚢e\u0301\u202eright to left",
    "\\u0000",
    "line\r\nbreak\ttab",
]
strings = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=40)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | strings,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(strings, inner, max_size=4),
    max_leaves=12,
)
documents = st.dictionaries(strings | st.sampled_from(HOSTILE), values | st.sampled_from(HOSTILE), max_size=5)


class TestPayloads(StoreTest):
    async def comes_back(self, payload: bytes) -> None:
        """Send a payload through enqueue, claim, settle (as the result) and find."""
        claimed = await self.enqueue_and_claim(await self.new_worker(), payload=payload)
        task = await self.settled(complete(claimed, payload))
        assert claimed.task.payload == task.payload == task.result == payload

    @given(document=documents, spaced=st.booleans(), ascii_only=st.booleans())
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    async def test_any_json_object_is_returned_byte_for_byte(
        self, document: dict[str, object], *, spaced: bool, ascii_only: bool
    ) -> None:
        text = json.dumps(document, ensure_ascii=ascii_only, indent=1 if spaced else None)

        await self.comes_back(text.encode())

    @pytest.mark.parametrize("size", [0, 1 << 10, 1 << 16, 1 << 20], ids=lambda size: f"{size}-bytes")
    async def test_payloads_up_to_one_mebibyte_are_returned(self, size: int) -> None:
        await self.comes_back(b'{"x":"%s"}' % ("é" * (size // 2 - 4)).encode())

    @pytest.mark.parametrize("text", HOSTILE)
    async def test_special_characters_in_names_are_harmless(self, text: str) -> None:
        names = {"type": f"t{text}", "tenant": text, "idempotency_key": f"k{text}", "enqueued_by": text}
        error = Error(type=f"E{text}", message=text, traceback=text)
        try:
            worker = await self.new_worker(f"w{text}")
            claimed = await self.enqueue_and_claim(worker, queue=f"q{text}", **names)
        except InvalidOption:  # a store may refuse them, as the client does
            assert not (await self.store.find(EVERYTHING, Page())).items
            return
        task = await self.settled(bury(claimed, error))

        assert {name: getattr(task, name) for name in names} == names
        assert (task.queue, task.error, task.worker) == (f"q{text}", error, f"w{text}")

    async def test_a_replaced_payload_is_returned(self, held: Claimed) -> None:
        edited = json.dumps({"x": HOSTILE}, ensure_ascii=False).encode()
        await self.settle_now(bury(held))

        await self.replay(held.task.id, payload=edited)

        assert (await self.load(held.task.id)).payload == edited

    async def test_following_steps_are_returned(self) -> None:
        step = {"id": new_id(), "type": "x", "payload": {"x": HOSTILE}}
        steps = json.dumps([step], ensure_ascii=False).encode()

        task_id = await self.enqueue_one(next=steps)

        assert (await self.load(task_id)).next == steps


def a_step(*following: Step, payload: bytes = b"{}") -> Step:
    return Step(id=new_id(), type="step", payload=Raw(payload), next=following)


class TestSizes(StoreTest):
    async def sizes(self, where: Filter | None = None) -> dict[str, tuple[int, int, int]]:
        counts = await self.store.count(where or Filter(), (Dimension.TENANT,), sized=True)
        return {count.values[0]: (count.number, count.steps, count.bytes) for count in counts}

    async def test_nothing_has_no_size(self) -> None:
        assert list(await self.store.count(Filter(), (), sized=True)) == [Count(values=(), number=0)]
        assert await self.sizes() == {}

    async def test_bytes_are_counted_by_tenant_and_only_on_request(self) -> None:
        payload = '{"text":"日本"}'.encode()
        await self.store.enqueue([a_task(tenant=name, payload=payload) for name in ("acme", "acme", "")])

        assert await self.sizes() == {"acme": (2, 0, 2 * len(payload)), "": (1, 0, len(payload))}
        assert await self.sizes(Filter(tenants=("acme",))) == {"acme": (2, 0, 2 * len(payload))}
        assert [(one.steps, one.bytes) for one in await self.store.count(Filter(), ())] == [(0, 0)]

    async def test_results_and_ended_tasks_count_until_they_are_deleted(self, held: Claimed) -> None:
        await self.settle_now(complete(held, b'"twelve pages"'))

        (count,) = await self.store.count(Filter(), (Dimension.STATE,), sized=True)

        assert count.values == (State.COMPLETED,)
        assert count.bytes == len(held.task.payload) + len(b'"twelve pages"')

    async def test_steps_count_until_they_are_tasks(self, worker: ManualWorker) -> None:
        last = a_step(payload=b'{"id":"0199c3a2-7d10-7abc-8def-0123456789ab"}')
        following = encode_steps((a_step(last), a_step()))
        assert following is not None
        await self.store.enqueue([a_task(tenant="acme", payload=b"{}", next=following)])
        assert await self.sizes() == {"acme": (1, 3, 2 + len(following))}

        (first,) = await worker.claim()
        assert (await self.sizes())["acme"][:2] == (1, 3)
        await self.store.settle([complete(first, None, *successors(first.task, None))])

        number, steps, _ = (await self.sizes())["acme"]
        assert (number, steps) == (3, 1)  # The first has spent its steps; one of those has one of its own.

    async def test_a_dead_task_may_be_replayed_so_its_steps_count(self, worker: ManualWorker) -> None:
        await self.store.enqueue([a_task(next=encode_steps((a_step(),)))])
        (first,) = await worker.claim()
        await self.store.settle([bury(first)])

        assert [number for number, *_ in (await self.sizes()).values()] == [1]
        assert [steps for _, steps, _ in (await self.sizes()).values()] == [1]
