"""The worker that keeps house is killed or frozen: another takes over, and nothing is kept waiting. (T3)"""

import pytest

from tests.system.fleet import Fleet, Member, wait_until

pytestmark = [pytest.mark.system, pytest.mark.timeout(90)]


def leader(fleet: Fleet) -> Member:
    wait_until(lambda: fleet.leader() is not None, 20, what="somebody leads")
    found = fleet.leader()
    assert found is not None
    return found


@pytest.fixture
def fleet_with_a_leader(fleet: Fleet) -> Fleet:
    fleet.start_ready(3)
    leader(fleet)
    return fleet


def test_promotions_and_rescues_go_on_when_the_leader_is_killed(fleet_with_a_leader: Fleet) -> None:
    fleet = fleet_with_a_leader
    old = leader(fleet)
    later = fleet.enqueue("quick", 20, delay=1.0)
    failing = fleet.enqueue("flaky", 10, failures=1)
    running = fleet.enqueue("nap", 20, seconds=1.5)
    wait_until(lambda: fleet.running() > 0, 20, what="something runs")

    fleet.kill(old)
    wait_until(fleet.is_drained, 30, what="all end")
    new = leader(fleet)
    fleet.drain(20)
    fleet.checked()

    assert new.name != old.name
    assert set(fleet.states([*later, *failing, *running])) == {"completed"}


def test_a_frozen_leader_is_succeeded_and_does_no_harm_when_it_wakes(fleet_with_a_leader: Fleet) -> None:
    fleet = fleet_with_a_leader
    old = leader(fleet)
    fleet.enqueue("nap", 30, seconds=1.0)
    wait_until(lambda: fleet.running() > 0, 20, what="something runs")

    fleet.freeze_unlocked(old)
    later = fleet.enqueue("quick", 20, delay=0.5)
    wait_until(lambda: leader(fleet).name != old.name, 25, what="another leads")
    fleet.thaw(old)
    later += fleet.enqueue("flaky", 20, failures=1)
    fleet.drain(30)
    fleet.checked()

    assert set(fleet.states(later)) == {"completed"}
