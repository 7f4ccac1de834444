"""Rate buckets that several processes share."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._http.bounds import shared_buckets
from windlass._http.bounds.rate_limit import LocalBuckets, RateLimiter
from windlass._http.bounds.shared_buckets import SharedBuckets, new_bucket_file
from windlass._http.web.problems import Problem
from windlass._model.key import ApiKey

HAMMER = """
import sys
from time import monotonic
from tests.http.test_shared_buckets import hammer
print(hammer(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])), flush=True)
"""


def key(name: str, rate: float) -> ApiKey:
    return ApiKey(name=name, label=name, hash="", scopes=(), created_at=datetime.now(UTC), rate=rate)


def passes(limiter: RateLimiter, kept: ApiKey) -> bool:
    try:
        limiter.take_request(kept)
    except Problem:  # or 503: on a busy machine another process may be interrupted while it holds the bucket
        return False
    return True


def hammer(descriptor: int, rate: float, until: float) -> int:
    """Ask as fast as possible until then; return how many requests passed."""
    limiter, kept, number = RateLimiter(SharedBuckets(descriptor)), key("k", rate), 0
    while monotonic() < until:
        number += passes(limiter, kept)
    return number


@pytest.fixture
def descriptor() -> Iterator[int]:
    with new_bucket_file() as file:
        yield file.fileno()


@given(st.data())
def test_two_processes_decide_as_one_would(data: st.DataObject) -> None:
    now = 1000.0
    with new_bucket_file() as file:
        local = RateLimiter(LocalBuckets(), clock=lambda: now)
        shared = [RateLimiter(SharedBuckets(file.fileno()), clock=lambda: now) for _ in range(2)]
        for _ in range(data.draw(st.integers(1, 40))):
            now += data.draw(st.floats(0, 0.5))
            kept = key(*data.draw(st.sampled_from([("a", 3.0), ("b", 0.5), ("c", 40.0)])))
            through = shared[data.draw(st.integers(0, 1))]
            assert passes(through, kept) == passes(local, kept)
            assert through.headers(kept) == local.headers(kept)


def test_a_process_that_had_to_wait_for_a_bucket_counts_from_when_it_has_it(descriptor: int) -> None:
    """Meanwhile others have emptied it: an older time would give back what they took."""
    now = 1000.0
    other = RateLimiter(SharedBuckets(descriptor), clock=lambda: now)

    class Awaited(SharedBuckets):
        @contextmanager
        def bucket(self, name: str) -> Iterator[list[float]]:
            nonlocal now
            now = 1000.5
            assert passes(other, key("k", 1))
            with super().bucket(name) as bucket:
                yield bucket

    waiting = RateLimiter(Awaited(descriptor), clock=lambda: now)
    assert waiting._take(key("k", 1), (1, 0, 0)) == [1.0, 0.0, 0.0]
    now = 1001.2
    assert not passes(other, key("k", 1))
    now = 1001.5
    assert passes(other, key("k", 1))


@pytest.mark.system
def test_processes_together_keep_to_the_rate_though_one_is_killed(descriptor: int) -> None:
    rate, began = 400.0, monotonic()
    until = began + 2.5
    arguments = [sys.executable, "-c", HAMMER, str(descriptor), str(rate), str(until)]
    started = [
        subprocess.Popen(arguments, pass_fds=[descriptor], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    passed = hammer(descriptor, rate, began + 1)
    os.kill(started[0].pid, signal.SIGKILL)
    passed += hammer(descriptor, rate, until)
    outputs = [process.communicate(timeout=30)[0] for process in started]
    passed += sum(int(output) for output in outputs[1:])
    assert outputs[0] == ""
    assert rate <= passed <= rate + rate * 2.5 + 1


@contextmanager
def held_elsewhere(descriptor: int, name: str) -> Iterator[subprocess.Popen[str]]:
    """Let another process hold a bucket until it reads a line, or is killed."""
    holding = f"""
from windlass._http.bounds.shared_buckets import SharedBuckets
with SharedBuckets({descriptor}).bucket({name!r}):
    print("held", flush=True)
    input()
"""
    holder = subprocess.Popen(
        [sys.executable, "-c", holding],
        pass_fds=[descriptor],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    yield holder
    holder.kill()
    holder.communicate()


@pytest.mark.system
def test_a_process_that_was_stopped_with_a_bucket_makes_others_refuse_and_not_wait(descriptor: int) -> None:
    limiter = RateLimiter(SharedBuckets(descriptor))
    with held_elsewhere(descriptor, "k"):
        began = monotonic()
        with pytest.raises(Problem) as refused:
            limiter.take_request(key("k", 5))
        assert (refused.value.status, refused.value.code) == (503, "busy")
        assert monotonic() - began < 5
        assert passes(limiter, key("other", 5))
    assert passes(limiter, key("k", 5))  # The lock went with the process.


@pytest.mark.system
def test_a_process_that_was_interrupted_with_a_bucket_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, descriptor: int
) -> None:
    monkeypatch.setattr(shared_buckets, "_LOCK_SECONDS", 30.0)
    limiter = RateLimiter(SharedBuckets(descriptor))
    with held_elsewhere(descriptor, "k") as holder:
        asked = threading.Thread(target=holder.communicate, args=("go on\n",))
        asked.start()
        assert passes(limiter, key("k", 5))
        asked.join()


@pytest.mark.system
def test_after_one_long_wait_others_are_short(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> None:
    """Else a process that was stopped would slow all others down until it is replaced."""
    monkeypatch.setattr(shared_buckets, "_LOCK_SECONDS", 1.0)
    monkeypatch.setattr(shared_buckets, "_SHORT_LOCK_SECONDS", 0.0)
    monkeypatch.setattr(shared_buckets, "_SHORT_FOR_SECONDS", 600.0)
    limiter, times = RateLimiter(SharedBuckets(descriptor)), [monotonic()]
    with held_elsewhere(descriptor, "k"):
        for _ in range(21):
            with pytest.raises(Problem, match="stalled"):
                limiter.take_request(key("k", 5))
            times.append(monotonic())
    assert times[1] - times[0] >= 1.0
    assert times[-1] - times[1] < 20.0


@pytest.mark.system
def test_a_request_that_was_decided_is_answered_without_figures_if_its_bucket_is_held(
    descriptor: int,
) -> None:
    """A 503 would say that a task that was stored was not: who repeats it would have two."""
    limiter, kept = RateLimiter(SharedBuckets(descriptor)), key("k", 5)
    limiter.take_request(kept)
    assert limiter.headers(kept)
    with held_elsewhere(descriptor, "k"):
        assert limiter.headers(kept) == {}


def test_a_full_set_gives_up_the_fullest_bucket(monkeypatch: pytest.MonkeyPatch, descriptor: int) -> None:
    monkeypatch.setattr(shared_buckets, "_SETS", 1)
    buckets = SharedBuckets(descriptor)
    for number in range(8):
        with buckets.bucket(str(number)) as bucket:
            bucket[0] = 100.0 - number
    with buckets.bucket("new") as bucket:
        assert bucket == [0.0, 0.0, 0.0]
        bucket[0] = 200.0
    with buckets.bucket("0") as bucket:
        assert bucket[0] == 100.0
    with buckets.bucket("7") as bucket:
        assert bucket[0] == 0.0
