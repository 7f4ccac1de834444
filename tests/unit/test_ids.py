"""Task ids: UUIDv7 that never repeat and only rise, across threads, forks and clock changes."""

import subprocess
import sys
import threading
import time
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass import _ids
from windlass._ids import new_id, new_ids

FORKING = """
import os
from windlass._ids import new_id

before = new_id()
reader, writer = os.pipe()
child = os.fork()
made = "\\n".join(new_id() for _ in range(2000))
if child:
    os.close(writer)
    theirs = os.fdopen(reader).read()
    assert os.waitpid(child, 0)[1] == 0
    print(before, made, theirs, sep="\\n")
else:
    os.write(writer, made.encode())
    os._exit(0)
"""


def moment_of(id: str) -> int:
    """The Unix milliseconds an id carries."""
    return UUID(id).int >> 80


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A clock that stands at its only item, in nanoseconds; ids start afresh with it."""
    now = [1_767_225_600_123_456_789]
    monkeypatch.setattr(_ids._source, "_last", 0)
    monkeypatch.setattr(_ids.time, "time_ns", lambda: now[0])
    return now


def test_an_id_is_a_uuid_of_version_7_in_its_usual_spelling() -> None:
    id = new_id()

    assert UUID(id).version == 7
    assert UUID(id).variant == RFC_4122
    assert str(UUID(id)) == id


def test_an_id_carries_the_millisecond_it_was_made() -> None:
    before = time.time_ns() // 1_000_000
    id = _ids._IdSource().next()

    assert before <= moment_of(id) <= time.time_ns() // 1_000_000


def test_ids_of_one_process_rise_strictly_and_never_repeat() -> None:
    ids = [new_id() for _ in range(100_000)]

    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_ids_of_one_process_differ_in_their_random_part() -> None:
    assert len({id[-16:] for id in (new_id() for _ in range(2_000))}) == 2_000


def test_ids_made_by_many_threads_at_once_are_all_different_and_rise_in_each() -> None:
    made: list[list[str]] = [[] for _ in range(8)]
    start = threading.Barrier(8)

    def make(mine: list[str]) -> None:
        start.wait()
        mine.extend(new_id() for _ in range(5_000))

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(mine == sorted(mine) for mine in made)
    assert len({id for mine in made for id in mine}) == 40_000


def test_a_forked_child_shares_neither_ids_nor_randomness_with_its_parent() -> None:
    # In a process of its own: forking one that has threads is not safe.
    output = subprocess.run(
        [sys.executable, "-c", FORKING], check=True, capture_output=True, text=True
    ).stdout

    ids = output.split()
    assert len(ids) == 4_001
    assert len({id[-16:] for id in ids}) == 4_001


def test_a_later_millisecond_makes_a_greater_id_also_across_processes(clock: list[int]) -> None:
    first = new_id()
    clock[0] += 1_000_000
    second = _ids._IdSource().next()

    assert second > first
    assert moment_of(second) == moment_of(first) + 1


def test_ids_rise_within_a_millisecond_and_run_ahead_rather_than_repeat(clock: list[int]) -> None:
    ids = [new_id() for _ in range(5_000)]

    assert ids == sorted(set(ids))
    assert {moment_of(id) for id in ids[:4096]} == {1_767_225_600_123}
    assert {moment_of(id) for id in ids[4096:]} == {1_767_225_600_124}


def test_ids_rise_though_the_clock_is_set_back(clock: list[int]) -> None:
    first = new_id()
    clock[0] -= 3_600 * 10**9
    second = new_id()

    assert second > first


@given(st.lists(st.integers(0, 5_000), max_size=4))
def test_several_are_like_so_many_single_ones(numbers: list[int]) -> None:
    before = new_id()
    made = [task_id for number in numbers for task_id in new_ids(number)]
    after = new_id()

    assert len(made) == sum(numbers)
    assert [before, *made, after] == sorted({before, *made, after})
    assert all(str(UUID(task_id)) == task_id and UUID(task_id).version == 7 for task_id in made)
