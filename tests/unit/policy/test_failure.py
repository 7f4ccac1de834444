"""Which errors are the same failure."""

import time

import pytest

from windlass._model.task import Error
from windlass._policy.failure import failure_of, origin_of, shape_of

HANDLER = '  File "/srv/shop/mail.py", line 12, in send\n    deliver(order)\n'
HELPER = '  File "/srv/shop/orders.py", line 40, in deliver\n    client.post(url)\n'
LIBRARY = '  File "/srv/.venv/lib/python3.12/site-packages/httpx/_client.py", line 900, in post\n'
STANDARD = '  File "/usr/lib/python3.12/json/decoder.py", line 355, in raw_decode\n'
OURS = '  File "/srv/src/windlass/_handler/context.py", line 90, in once\n'
FROZEN = '  File "<frozen importlib._bootstrap>", line 241, in _call_with_frames_removed\n'
HEAD = "Traceback (most recent call last):\n"


def trace(*frames: str, end: str = "ValueError: no") -> str:
    return HEAD + "".join(frames) + end


class TestShape:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("order 17 is gone", "order 4012 is gone"),
            ("balance -3.50", "balance +1,200.07"),
            ("no user 'ann'", "no user 'bob the 2nd'"),
            ('no key "a"', 'no key "b"'),
            ("cannot decode b'abc'", "cannot decode b'xyz w'"),
            ("<Order object at 0x7f00aa>", "<Order object at 0x7f12ff>"),
            ("task 0199c3a2-7d10-7abc-8def-0123456789ab", "task deadbeef-aaaa-bbbb-cccc-ddddddddddff"),
            ("commit 9fceb02d0ae5 is missing", "commit 1a410efbd13f is missing"),
            ("customer cus_9s6XKzk", "customer cus_NRiz8i3"),
            ("no reply after 3.5s", "no reply after 120 ms"),
            ("took 1 second", "took 25 seconds"),
            ("disk 97% full", "disk 9% full"),
            ("connect to 10.0.0.1:5432 failed", "connect to 192.168.1.77:6432 failed"),
            ("connect to 2001:db8::1 failed", "connect to fe80:0:0:1::2 failed"),
            ("at 2026-11-16T08:00:00Z", "at 2025-01-02T03:04:05.678+01:00"),
            ("cannot open /srv/a/b.txt", "cannot open /tmp/x"),
            ("cannot open C:\\data\\x", "cannot open D:\\y"),
            ("GET https://a.example/x?y=1 failed", "GET http://b.example failed"),
            ("mail to ann@a.example bounced", "mail to b.c+d@e.example bounced"),
            ("two\n  lines", "two lines"),
        ],
    )
    def test_values_do_not_count(self, one: str, other: str) -> None:
        assert shape_of(one) == shape_of(other)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("order is gone", "user is gone"),
            ("can't read the user's file", "can't write the user's file"),
            ("either/or failed", "both/and failed"),
            ("column a::text", "column b::text"),
            ("", "#"),
        ],
    )
    def test_words_count(self, one: str, other: str) -> None:
        assert shape_of(one) != shape_of(other)

    @pytest.mark.parametrize(
        "part",
        [
            "a", "1", "'", '"', "`", "a.", ":", "/", "\\", "a@", "ab-", "0:", "'\"", ".", "~", "a:/", "é",
            "+", "1,", "1.a", "://", "a+", "1 ", "deadbeef-", "a" * 90 + " ", "1" * 90 + "-", "b'", "\n",
        ],
    )  # fmt: skip
    def test_hostile_messages_are_read_in_linear_time(self, part: str) -> None:
        message = part * (1_000_000 // len(part))
        started = time.perf_counter()

        shape = shape_of(message)

        assert len(shape) <= 500
        assert time.perf_counter() - started < 0.25  # of 2,000 characters, about 1 ms


class TestOrigin:
    @pytest.mark.parametrize("inner", [LIBRARY, STANDARD, OURS, FROZEN, LIBRARY + STANDARD])
    def test_it_is_the_innermost_function_of_the_program(self, inner: str) -> None:
        assert origin_of(trace(HANDLER, HELPER, inner)) == "orders.py deliver"

    def test_of_an_installed_program_it_is_the_handler(self) -> None:
        installed = HANDLER.replace("/srv", "/usr/lib/python3/dist-packages")

        assert origin_of(trace(installed, LIBRARY)) == "mail.py send"

    def test_of_chained_exceptions_the_last_counts(self) -> None:
        cause = trace(HELPER, end="KeyError: 'x'\n\nDuring handling of the above exception, another …\n\n")

        assert origin_of(cause + trace(HANDLER)) == "mail.py send"

    def test_lines_and_directories_do_not_count(self) -> None:
        moved = HANDLER.replace("line 12", "line 80").replace("/srv/", "/srv/releases/20261116/")

        assert origin_of(trace(moved)) == origin_of(trace(HANDLER))
        assert origin_of(trace(HANDLER.replace("/", "\\"))) == origin_of(trace(HANDLER))

    @pytest.mark.parametrize("text", ["", "no traceback", HEAD, "boom at x.rb:12"])
    def test_without_frames_it_is_unknown(self, text: str) -> None:
        assert origin_of(text) == ""

    @pytest.mark.parametrize("part", ['File "', 'File "a", line ', 'File "a", line 1, in ', HEAD, "1", '"'])
    def test_hostile_tracebacks_are_read_in_linear_time(self, part: str) -> None:
        started = time.perf_counter()

        origin_of(part * (1_000_000 // len(part)))

        assert time.perf_counter() - started < 0.25


class TestFailure:
    ERROR = Error(type="ValueError", message="no user 17", traceback=trace(HANDLER))

    def test_it_is_16_hexadecimal_characters(self) -> None:
        failure = failure_of("mail", self.ERROR)

        assert len(failure) == 16
        assert set(failure) <= set("0123456789abcdef")

    def test_it_is_the_same_in_every_process(self) -> None:
        assert failure_of("mail", Error(type="Timeout", message="no reply after 3 s")) == "a39683b636bd908e"

    @pytest.mark.parametrize(
        ("task_type", "error"),
        [
            ("report", ERROR),
            ("mail", Error(type="KeyError", message="no user 17", traceback=trace(HANDLER))),
            ("mail", Error(type="ValueError", message="no order 17", traceback=trace(HANDLER))),
            ("mail", Error(type="ValueError", message="no user 17", traceback=trace(HELPER))),
            ("mail", Error(type="ValueError", message="no user 17")),
        ],
    )
    def test_type_error_message_and_origin_count(self, task_type: str, error: Error) -> None:
        assert failure_of(task_type, error) != failure_of("mail", self.ERROR)

    def test_values_and_lines_do_not_count(self) -> None:
        alike = Error(
            type="ValueError", message="no user 4", traceback=trace(HANDLER.replace("12", "13"), end="")
        )

        assert failure_of("mail", alike) == failure_of("mail", self.ERROR)

    def test_text_that_utf_8_cannot_encode(self) -> None:
        assert failure_of("mail", Error(type="X", message="\ud800"))
