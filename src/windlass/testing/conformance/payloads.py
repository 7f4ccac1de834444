"""Payloads: any JSON is returned byte for byte."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..._ids import new_id
from ..._model.lease import Claimed
from ..._model.task import Error
from .steps import StoreTest, bury, complete

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
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | strings,
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
        await self.comes_back(b'{"x":"%s"}' % ("é" * (size // 2)).encode())

    @pytest.mark.parametrize("text", HOSTILE)
    async def test_special_characters_in_names_are_harmless(self, text: str) -> None:
        names = {"type": f"t{text}", "tenant": text, "idempotency_key": f"k{text}", "enqueued_by": text}
        error = Error(type=f"E{text}", message=text, traceback=text)
        worker = await self.new_worker(f"w{text}")

        claimed = await self.enqueue_and_claim(worker, queue=f"q{text}", **names)
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
