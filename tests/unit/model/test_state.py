"""States: the table has exactly the transitions of the design."""

from itertools import product

import pytest

from windlass._model.state import ENDED, PENDING, REPLAYABLE, TRANSITIONS, State, Verb, allowed, targets

# The design's table, "The life of a task", row by row: from, verb, to, who.
TABLE = """
-         | enqueue  | waiting scheduled ready | client
waiting   | unblock  | scheduled ready         | store
scheduled | promote  | ready                   | keeper
ready     | claim    | running                 | worker
running   | rescue   | running                 | keeper
running   | complete | completed               | holder
running   | postpone | scheduled ready         | holder
running   | bury     | dead                    | holder
running   | cancel   | cancelled               | holder
waiting   | cancel   | cancelled               | operator
scheduled | cancel   | cancelled               | operator
ready     | cancel   | cancelled               | operator
dead      | replay   | scheduled ready         | operator
cancelled | replay   | scheduled ready         | operator
dead      | discard  |                         | operator
"""


def rows() -> list[tuple[str, str, tuple[str, ...], str]]:
    cells = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]
    return [(source, verb, tuple(to.split()), by) for source, verb, to, by in cells]


LEGAL = {(source, verb): to for source, verb, to, _ in rows()}
MOVES = list(product([None, *State], Verb))


def test_the_table_is_the_one_in_the_design() -> None:
    table = [(row.source or "-", row.verb, row.targets, row.by) for row in TRANSITIONS]

    assert sorted(table) == sorted(rows())


def test_no_move_has_two_rows() -> None:
    assert len({(row.source, row.verb) for row in TRANSITIONS}) == len(TRANSITIONS)


@pytest.mark.parametrize(("source", "verb"), MOVES)
def test_a_move_is_allowed_exactly_when_the_design_has_it(source: State | None, verb: Verb) -> None:
    assert allowed(source, verb) is ((source or "-", verb) in LEGAL)


@pytest.mark.parametrize(("source", "verb"), [move for move in MOVES if (move[0] or "-", move[1]) in LEGAL])
def test_a_legal_move_leads_where_the_design_says(source: State | None, verb: Verb) -> None:
    assert targets(source, verb) == LEGAL[source or "-", verb]


@pytest.mark.parametrize(
    ("source", "verb"), [move for move in MOVES if (move[0] or "-", move[1]) not in LEGAL]
)
def test_an_illegal_move_leads_nowhere(source: State | None, verb: Verb) -> None:
    with pytest.raises(KeyError):
        targets(source, verb)


def test_every_state_can_be_reached() -> None:
    reached: set[State | None] = {None}
    while new := {to for row in TRANSITIONS if row.source in reached for to in row.targets} - reached:
        reached |= new

    assert reached == {None, *State}


def test_every_task_can_come_to_an_end() -> None:
    ending: set[State | None] = set(ENDED)
    while new := {row.source for row in TRANSITIONS if ending & set(row.targets)} - ending:
        ending |= new

    assert ending == {None, *State}


def test_an_end_is_final_but_for_a_replay_or_a_discard() -> None:
    ways_out = {(row.source, row.verb) for row in TRANSITIONS if row.source in ENDED}

    assert ways_out == {
        (State.DEAD, Verb.REPLAY),
        (State.CANCELLED, Verb.REPLAY),
        (State.DEAD, Verb.DISCARD),
    }


def test_only_an_operator_brings_back_what_has_ended() -> None:
    assert {row.by for row in TRANSITIONS if row.source in ENDED} == {"operator"}


def test_every_state_waits_runs_or_has_ended() -> None:
    assert PENDING | {State.RUNNING} | ENDED == set(State)
    assert not PENDING & ENDED


def test_replayable_is_what_the_table_lets_replay() -> None:
    assert {row.source for row in TRANSITIONS if row.verb is Verb.REPLAY} == REPLAYABLE


def test_pending_is_what_an_operator_can_cancel_at_once() -> None:
    cancelled_at_once = {r.source for r in TRANSITIONS if (r.verb, r.by) == (Verb.CANCEL, "operator")}

    assert cancelled_at_once == PENDING


def test_every_verb_moves_something() -> None:
    assert {row.verb for row in TRANSITIONS} == set(Verb)
