"""Build tasks from a type, a payload and options, for every caller: programs, HTTP, CLI and schedules."""

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from .._handler.spec import HandlerSpec
from .._ids import new_id, new_ids
from .._model.options import Defaults, Options
from .._model.task import NewTask, TaskId, synthetic_trace
from .._observe.tracing import inherited_trace
from .._policy.input.chain import Step, with_fresh_ids
from .._policy.input.fingerprint import fingerprint_like
from .._policy.input.new_task import Origin, group, new_step, new_task
from .._policy.input.payload import encode_payload, parse_payload
from ..errors import InvalidOption

_LARGE = 16 << 10


def checked_payload(text: str | bytes, spec: HandlerSpec | None, result_into: str | None = None) -> bytes:
    """Parse a payload from JSON; check it against the handler, if known. Raises InvalidPayload.

    `result_into` is the parameter that receives a predecessor's result, and is not in the payload yet.
    """
    payload = parse_payload(text)
    if spec is not None:
        spec.signature.check(payload, result_into)
    return payload


def encoded_payload(
    payload: Mapping[str, Any], spec: HandlerSpec | None, result_into: str | None = None
) -> bytes:
    """Encode a payload and check it against the handler, if known; `result_into` as in `checked_payload`.

    Raises InvalidPayload.
    """
    if spec is None or not isinstance(payload, Mapping):
        return encode_payload(payload)  # which refuses all else
    encoded = encode_payload(spec.signature.plain(payload))
    spec.signature.check(encoded, result_into)
    return encoded


async def checked_aside(
    text: Mapping[str, Any] | str | bytes, spec: HandlerSpec | None, result_into: str | None = None
) -> bytes:
    """Parse JSON, in a thread if it is large so that the event loop goes on; or encode a mapping."""
    if not isinstance(text, str | bytes):
        return encoded_payload(text, spec, result_into)
    if len(text) <= _LARGE:
        return checked_payload(text, spec, result_into)
    return await asyncio.to_thread(checked_payload, text, spec, result_into)


class TaskBuilder:
    """Builds tasks for one origin.

    `enqueued_by` and `trace` are recorded on each task; without a trace, a task continues the trace that is
    current where it is built, or starts one.
    """

    def __init__(self, *, enqueued_by: str = "", trace: str | None = None) -> None:
        self._enqueued_by = enqueued_by
        self._trace = trace
        self._plain: dict[str, NewTask] = {}

    def origin(self) -> Origin:
        """What a task built here and now records of where it comes from."""
        return Origin(trace=self._current_trace(), enqueued_by=self._enqueued_by)

    def step(
        self, type: str, payload: bytes, options: Options, defaults: Defaults, result_into: str | None = None
    ) -> Step:
        """Build a step from an encoded payload; `defaults` of its type apply where there is no option.

        `result_into` names the field of the payload that the result of the task before it becomes.
        """
        return new_step(type, payload, defaults, options, id=new_id(), result_into=result_into)

    def task(self, step: Step, options: Options | None = None) -> NewTask:
        """Build the first task of a request from a step, which can be used any number of times.

        The options are those that only a first task takes, such as `run_at` and `idempotency_key`.
        """
        if not isinstance(step, Step):
            raise InvalidOption(f"enqueue takes a step, not {step!r}; make one with a task type's step()")
        return new_task(with_fresh_ids(step, new_id), options or {}, self.origin())

    def build(
        self,
        type: str,
        payload: bytes,
        options: Options,
        defaults: Defaults,
        result_into: str | None = None,
    ) -> NewTask:
        """Build the first task of a request from an encoded payload.

        `result_into`: the parameter that receives the results of the tasks that it waits for.
        """
        step = self.step(type, payload, options, defaults, result_into)
        return self.first(step if result_into is None else replace(step, result_into=result_into), options)

    def first(self, step: Step, options: Options) -> NewTask:
        """Build the first task of a request from a step that was built for it, and for nothing else."""
        # The steps that follow it may have been made for several.
        return new_task(with_fresh_ids(step, new_id) if step.next else step, options, self.origin())

    def plain(self, spec: HandlerSpec, payload: bytes) -> NewTask:
        """Build a task of a declared type without options: all but id, payload and trace is built once."""
        known = self._plain.get(spec.name)
        if known is None:
            task = self._plain[spec.name] = self.build(spec.name, payload, {}, spec.defaults)
            return task
        return _copy(known, new_id(), payload, self._current_trace())

    def more_like(self, first: NewTask, payloads: Sequence[bytes]) -> list[NewTask]:
        """Build tasks like the first, which has neither key nor chain, with other ids and payloads."""
        ids = new_ids(len(payloads))
        return [_copy(first, id, payload, first.trace) for id, payload in zip(ids, payloads, strict=True)]

    def group(self, steps: Iterable[Step], then: Step) -> tuple[NewTask, ...]:
        """Build a group: the tasks of these steps, and last the one that waits for all of them."""
        return group([self.task(step) for step in steps], then, self.task)

    def _current_trace(self) -> str:
        return self._trace or inherited_trace() or synthetic_trace(random.getrandbits(128))


def _copy(task: NewTask, id: TaskId, payload: bytes, trace: str | None) -> NewTask:
    fingerprint = task.fingerprint
    if fingerprint is not None:
        fingerprint = fingerprint_like(fingerprint, task.type, payload, task.priority, task.tenant)
    root = id if task.root == task.id else task.root
    return replace(task, id=id, root=root, payload=payload, trace=trace, fingerprint=fingerprint)
