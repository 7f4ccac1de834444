"""A large response that many requests share."""

import asyncio
from typing import Any

import pytest

from windlass._http.web.shared_response import PART, SharedResponse


@pytest.mark.parametrize("size", [0, 1, PART, PART + 1, 3 * PART])
async def test_it_is_sent_in_parts_between_which_others_have_their_turn(size: int) -> None:
    body = bytes(n % 251 for n in range(size))
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    response = asyncio.create_task(SharedResponse(body)({}, send, send))  # type: ignore[arg-type]  not received
    turns = 0
    while not response.done():
        turns += 1
        await asyncio.sleep(0)

    start, *parts = sent
    assert (b"content-length", str(size).encode()) in start["headers"]
    assert b"".join(one["body"] for one in parts) == body
    assert max(len(one["body"]) for one in parts) <= PART
    assert [one["more_body"] for one in parts] == [True] * (len(parts) - 1) + [False]
    assert turns > len(parts)
