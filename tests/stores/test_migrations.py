"""Steps of a schema and their phases, whatever the store."""

import pytest

from windlass._store.protocol import Phase, Severity
from windlass._stores.migrations import (
    Step,
    load_steps,
    needed,
    next_move,
    overview,
    require_current,
    standing,
)
from windlass.errors import SchemaMismatch


def steps(*phases: str) -> tuple[Step, ...]:
    return tuple(
        Step(number=n, name=f"s{n}", up=f"-- phase: {phase}\nup", down="down")
        for n, phase in enumerate(phases, 1)
    )


def test_the_first_line_of_a_script_says_the_phase() -> None:
    plain = Step(number=1, name="s", up="-- Tables.\n-- phase: after\n", down="")

    assert plain.phase is Phase.BEFORE
    assert [step.phase.value for step in steps("before", "after")] == ["before", "after"]
    with pytest.raises(ValueError, match="during"):
        _ = steps("during")[0].phase


@pytest.mark.parametrize("package", ["windlass._stores.sqlite", "windlass._stores.postgres"])
def test_every_step_of_ours_has_a_phase(package: str) -> None:
    assert all(step.phase in Phase for step in load_steps(package))


def test_the_phase_is_shown() -> None:
    listed = overview(steps("before", "after"), 1)
    move = next_move(steps("before", "after"), 1, None)

    assert [(step.phase, step.applied) for step in listed] == [(Phase.BEFORE, True), (Phase.AFTER, False)]
    assert move is not None
    assert move.migration.phase is Phase.AFTER


@pytest.mark.parametrize(
    ("phases", "lowest"),
    [
        ((), 0),
        (("before",), 1),
        (("before", "after"), 1),
        (("before", "after", "after"), 1),
        (("before", "after", "before"), 3),
        (("before", "after", "before", "after"), 3),
    ],
)
def test_code_does_without_the_last_steps_for_after(phases: tuple[str, ...], lowest: int) -> None:
    known = steps(*phases)

    assert needed(known) == lowest
    for at in range(len(known) + 2):
        finding = standing(known, at, "here")
        if lowest <= at <= len(known):
            require_current(known, at, "here")
            assert finding.severity is (Severity.OK if at == len(known) else Severity.WARNING)
            assert ("--phase after" in finding.message) == (at < len(known))
        else:
            with pytest.raises(SchemaMismatch, match=f"schema {at}"):
                require_current(known, at, "here")
            assert finding.severity is Severity.ERROR
