"""Alerts: raised at the threshold, cleared after the hold, one notice each; delivery is retried for a day."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from windlass._model.alert import MAX_COUNT, Alert, AlertNotice, AlertState, Turn
from windlass._model.state import State
from windlass._policy.alerts import (
    GIVE_UP_AFTER,
    MAX_UNSENT,
    REMIND_EVERY,
    add_notice,
    dead_letter_filter,
    evaluate,
    mark_failed,
    mark_sent,
    new_alert,
    next_notice,
    webhook_origin,
    webhook_url,
)
from windlass.errors import InvalidOption

START = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
MAIL = Alert(name="mail", count=3, hold=5 * MINUTE)


def after(minutes: float) -> datetime:
    return START + minutes * MINUTE


def told(alert: Alert, numbers: list[tuple[float, int]]) -> list[tuple[float, Turn]]:
    """What is told when there are so many after so many minutes."""
    alarm, heard = AlertState(name=alert.name), []
    for minutes, number in numbers:
        alarm, news = evaluate(alert, alarm, number, after(minutes))
        if news is not None:
            heard.append((minutes, news.turn))
    return heard


class TestJudging:
    def test_it_is_raised_at_the_threshold_and_not_below(self) -> None:
        assert told(MAIL, [(0, 0), (1, 2)]) == []
        assert told(MAIL, [(0, 2), (1, 3), (2, 4), (3, 300)]) == [(1, Turn.RAISED)]

    def test_it_is_cleared_once_there_were_fewer_for_the_hold(self) -> None:
        assert told(MAIL, [(0, 3), (1, 2), (5.9, 0), (6, 2)]) == [(0, Turn.RAISED), (6, Turn.CLEARED)]

    def test_one_look_above_begins_the_hold_anew(self) -> None:
        quiet = [(0, 3), (1, 2), (5, 3), (6, 2), (10, 2)]

        assert told(MAIL, quiet) == [(0, Turn.RAISED)]
        assert told(MAIL, [*quiet, (11, 2)]) == [(0, Turn.RAISED), (11, Turn.CLEARED)]

    def test_without_a_hold_it_is_cleared_at_once(self) -> None:
        at_once = Alert(name="mail", count=3, hold=timedelta(0))

        assert told(at_once, [(0, 3), (1, 2)]) == [(0, Turn.RAISED), (1, Turn.CLEARED)]

    def test_after_it_was_cleared_it_can_be_raised_again(self) -> None:
        turns = told(MAIL, [(0, 3), (1, 0), (6, 0), (7, 3)])

        assert turns == [(0, Turn.RAISED), (6, Turn.CLEARED), (7, Turn.RAISED)]

    def test_while_it_is_raised_a_reminder_comes_once_a_day(self) -> None:
        day = REMIND_EVERY / MINUTE
        turns = told(MAIL, [(0, 3), (day - 1, 3), (day, 3), (day + 1, 3), (2 * day, 3)])

        assert turns == [(0, Turn.RAISED), (day, Turn.REMINDED), (2 * day, Turn.REMINDED)]

    def test_a_raised_threshold_clears_it_after_the_hold(self) -> None:
        raised, _ = evaluate(MAIL, AlertState(name="mail"), 3, START)
        higher = Alert(name="mail", count=10)

        below, nothing = evaluate(higher, raised, 3, after(1))
        cleared, news = evaluate(higher, below, 3, after(6))

        assert nothing is None
        assert (news and news.turn, cleared.raised_at) == (Turn.CLEARED, None)

    def test_a_clock_that_is_set_back_begins_the_hold_anew(self) -> None:
        assert told(MAIL, [(60, 3), (61, 0), (10, 0), (14, 0)]) == [(60, Turn.RAISED)]
        assert told(MAIL, [(60, 3), (61, 0), (10, 0), (15, 0)]) == [(60, Turn.RAISED), (15, Turn.CLEARED)]

    def test_what_is_told_says_since_when_and_how_many(self) -> None:
        raised, first = evaluate(MAIL, AlertState(name="mail"), 4, START)
        below, _ = evaluate(MAIL, raised, 1, after(1))
        cleared, last = evaluate(MAIL, below, 2, after(6))

        assert first == AlertNotice(
            id="raised-20260329T013000000000Z-00d8d3f11739d2f3",
            turn=Turn.RAISED,
            number=4,
            at=START,
            raised_at=START,
        )
        assert last == AlertNotice(
            id="cleared-20260329T013600000000Z-00d8d3f11739d2f3",
            turn=Turn.CLEARED,
            number=2,
            at=after(6),
            raised_at=START,
        )
        assert raised == AlertState(name="mail", raised_at=START, told_at=START, number=4, last=first.id)
        assert cleared == AlertState(name="mail", told_at=after(6), number=2, last=last.id)

    def test_ids_fit_a_header_and_are_the_alerts_own(self) -> None:
        names = ["mail", "m.a.i.l", "m_a_i_l", "почта", "a" * 128]
        ids = {evaluate(Alert(name=name), AlertState(name=name), 1, START)[0].last for name in names}

        assert len(ids) == len(names)
        assert all(one.isascii() and "." not in one and len(one) < 60 for one in ids)

    def test_nothing_changes_while_nothing_happens(self) -> None:
        raised, _ = evaluate(MAIL, AlertState(name="mail"), 4, START)

        assert evaluate(MAIL, raised, 5, after(1)) == (raised, None)
        assert evaluate(MAIL, AlertState(name="mail"), 2, START) == (AlertState(name="mail"), None)

    def test_without_a_webhook_nothing_waits_to_be_sent(self) -> None:
        raised, news = evaluate(MAIL, AlertState(name="mail"), 4, START)
        assert news is not None

        alarm, _ = evaluate(MAIL, add_notice(raised, news), 4, after(1))

        assert alarm.unsent == ()

    @given(
        steps=st.lists(st.tuples(st.integers(-30, 2000), st.integers(0, 6)), max_size=60),
        count=st.integers(1, 5),
        hold=st.integers(0, 60),
    )
    @example(steps=[(0, 3), (1, 2), (5, 2)], count=3, hold=5)
    def test_whatever_comes_it_does_not_flap(
        self, steps: list[tuple[int, int]], count: int, hold: int
    ) -> None:
        alert = Alert(name="a", count=count, hold=hold * MINUTE)
        alarm, now, turns, ids = AlertState(name="a"), START, [], []
        looks: list[tuple[datetime, int]] = []
        for minutes, number in steps:
            now += minutes * MINUTE
            looks.append((now, number))
            alarm, news = evaluate(alert, alarm, number, now)
            if news is None:
                continue
            turns.append(news.turn)
            ids.append(news.id)
            if news.turn is Turn.CLEARED:  # every look for as long as the hold was below
                since = next(i for i in range(len(looks), -1, -1) if i == 0 or looks[i - 1][1] >= count)
                assert now - min(at for at, _ in looks[since:]) >= alert.hold
                assert number < count
            else:
                assert number >= count

        opened = [turn for turn in turns if turn is not Turn.REMINDED]
        assert all(one != other for one, other in pairwise(opened))
        assert turns[:1] in ([], [Turn.RAISED])
        assert not any(one is Turn.CLEARED and other is Turn.REMINDED for one, other in pairwise(turns))
        assert (alarm.raised_at is not None) == (opened[-1:] == [Turn.RAISED])


class TestSending:
    def waiting(self, *ids: str) -> AlertState:
        alarm = AlertState(name="mail", raised_at=START)
        for one in ids:
            news = AlertNotice(id=one, turn=Turn.RAISED, number=3, at=START, raised_at=START)
            alarm = add_notice(alarm, news)
        return alarm

    def test_the_oldest_goes_first_and_until_it_is_taken(self) -> None:
        alarm = self.waiting("a", "b")

        first = next_notice(alarm, START)
        second = next_notice(mark_sent(alarm, "a"), START)

        assert first is not None
        assert second is not None
        assert (first.id, second.id) == ("a", "b")
        assert next_notice(mark_sent(mark_sent(alarm, "a"), "b"), START) is None

    def test_what_was_not_taken_is_tried_again_later_and_later(self) -> None:
        alarm, now, waits = self.waiting("a", "b"), START, []
        for _ in range(9):
            alarm = mark_failed(alarm, "a", now, 0.5)
            due = alarm.unsent[0].due_at
            assert due is not None
            waits.append((due - now).total_seconds())
            assert next_notice(alarm, due - timedelta(microseconds=1)) is None
            assert next_notice(alarm, due) == alarm.unsent[0]
            now = due

        assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
        assert [news.id for news in alarm.unsent] == ["a", "b"]
        assert [news.tries for news in alarm.unsent] == [9, 0]

    def test_after_a_day_it_is_given_up(self) -> None:
        alarm = self.waiting("a", "b")
        moment = timedelta(microseconds=1)

        assert len(mark_failed(alarm, "a", START + GIVE_UP_AFTER - moment, 0.5).unsent) == 2
        assert [news.id for news in mark_failed(alarm, "a", START + GIVE_UP_AFTER, 0.5).unsent] == ["b"]

    def test_a_clock_that_is_set_back_does_not_silence_a_webhook(self) -> None:
        alarm = mark_failed(self.waiting("a"), "a", START + timedelta(days=1) - MINUTE, 0.5)

        assert next_notice(alarm, START) is not None

    def test_when_too_many_wait_the_oldest_goes(self) -> None:
        alarm = self.waiting(*(str(n) for n in range(MAX_UNSENT + 2)))

        assert [news.id for news in alarm.unsent] == [str(n) for n in range(2, MAX_UNSENT + 2)]


class TestMaking:
    def test_options_are_made_exact(self) -> None:
        alert = new_alert(
            "mail",
            type="shop.mail",
            queue="mail",
            count=3,
            window="5m",
            hold=60,
            webhook="https://a.example/x",
        )

        assert alert == Alert(
            name="mail",
            type="shop.mail",
            queue="mail",
            count=3,
            window=5 * MINUTE,
            hold=MINUTE,
            webhook="https://a.example/x",
        )
        assert new_alert("all") == Alert(name="all", count=1, hold=5 * MINUTE)

    def test_it_counts_the_dead_of_its_type_and_queue_within_its_window(self) -> None:
        all_of_them = dead_letter_filter(new_alert("all"), START)
        some = dead_letter_filter(new_alert("some", type="t", queue="q", window="5m"), START)

        assert (all_of_them.states, all_of_them.types, all_of_them.finished_after) == (
            (State.DEAD,),
            None,
            None,
        )
        assert (some.types, some.queues, some.finished_after) == (("t",), ("q",), START - 5 * MINUTE)

    @pytest.mark.parametrize(
        "options",
        [
            {"type": ""},
            {"queue": "a b"},
            {"count": 0},
            {"count": MAX_COUNT + 1},
            {"count": True},
            {"count": "3"},
            {"window": 0},
            {"window": "soon"},
            {"hold": -1},
        ],
        ids=str,
    )
    def test_what_is_wrong_is_refused(self, options: dict[str, Any]) -> None:
        with pytest.raises(InvalidOption):
            new_alert("mail", **options)

    def test_it_does_not_show_its_webhook(self) -> None:
        assert "hunter2" not in repr(new_alert("mail", webhook="https://a.example/hunter2"))

    @pytest.mark.parametrize(
        "url",
        [
            "http://localhost",
            "https://hooks.example:8443/services/T0/B0?x=1",
            "http://[::1]:80/",
            "https://a.example/%20",
        ],
    )
    def test_a_url_is_taken(self, url: str) -> None:
        assert webhook_url(url) == url

    @pytest.mark.parametrize(
        "url",
        [
            None,
            "",
            "hunter2",
            "//hunter2.example",
            "ftp://hunter2.example",
            "file:///etc/hunter2",
            "http://",
            "http://:80/hunter2",
            "http://hunter2.example:0",
            "http://hunter2.example:99999",
            "http://hunter2.example:http",
            "http://[hunter2",
            "https://user:hunter2@a.example/",
            "https://hunter2@a.example/",
            "https://a.example/hunter2#there",
            "https://a.example/hunter2 there",
            "https://a.example/hunter2\r\nHost: b",
            "https://hunter2ä.example/",
            "https://a.example/hunter2" + "x" * 2000,
        ],
    )
    def test_a_url_is_refused_and_not_repeated(self, url: Any) -> None:
        with pytest.raises(InvalidOption) as refused:
            webhook_url(url)

        assert "hunter2" not in str(refused.value)

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("https://a.example", "https://a.example"),
            ("https://a.example:8443/", "https://a.example:8443"),
            ("https://a.example/hunter2", "https://a.example/…"),
            ("https://a.example?key=hunter2", "https://a.example/…"),
        ],
    )
    def test_a_url_is_shown_without_what_may_be_secret(self, url: str, shown: str) -> None:
        assert webhook_origin(url) == shown


@pytest.mark.parametrize(
    ("url", "shown"), [("http://[bad/", "an invalid URL"), ("http://a:pw@h/x", "http://h/…")]
)
def test_the_origin_of_a_url_that_was_stored_unchecked(url: str, shown: str) -> None:
    assert webhook_origin(url) == shown
