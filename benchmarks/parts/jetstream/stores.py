"""Several stores on one cluster, each with an owner and a worker; and what larger clusters would carry.

The calculation takes the processor time of a task from this machine, where all processes share its cores.
"""

from contextlib import ExitStack

from benchmarks.figures import MICROSECONDS, RATE, Figure, Findings
from benchmarks.parts.jetstream.capacity import Cost, capacity
from benchmarks.parts.jetstream.drain import drained, fill
from benchmarks.parts.jetstream.servers import Costs, started
from benchmarks.parts.plan import Plan
from benchmarks.progress import tell

PART, CALCULATED = "several stores, JetStream, 3 nodes", "calculated, JetStream"
NUMBERS = (1, 2, 4)
MACHINES = (3, 9, 30)
CORES = 8  # of each machine in the calculation


def measure(plan: Plan) -> Findings:
    """Enqueue and drain in as many stores at once, round after round."""
    rates: dict[int, list[float]] = {number: [] for number in NUMBERS}
    costs: dict[int, list[Cost]] = {number: [] for number in NUMBERS}
    with started(plan.folder, 3) as servers:
        for turn in range(plan.rounds):
            for number in NUMBERS:
                tell(f"stores … round {turn + 1} of {plan.rounds}: {number}")
                with ExitStack() as stack:
                    stores = [stack.enter_context(servers.store()) for _ in range(number)]
                    used = Costs(servers, *stores)
                    for store in stores:
                        fill(store.url, plan.drained)
                    result = drained(
                        [store.url for store in stores], plan.drained, processes=1, slots=plan.slots
                    )
                    spent, tasks = used.spent(), number * plan.drained
                rates[number].append(result.rate)
                costs[number].append(
                    Cost(
                        owner=spent.owners / tasks * 1e6,
                        nodes=spent.nodes / tasks * 1e6,
                        worker=result.processor / tasks * 1e6,
                    )
                )
        findings = Findings(facts=servers.described())
    for number in NUMBERS:
        who = f"{number} store{'s' if number > 1 else ''}"
        findings.add(Figure(PART, "drain, all together", who, RATE, tuple(rates[number])))
        each = tuple(cost.total for cost in costs[number])
        findings.add(Figure(PART, "bulk and drain, processor time", who, MICROSECONDS, each))
    one = Cost.median(costs[1])
    for name in ("owner", "nodes", "worker"):
        findings.add(Figure(PART, f"of that, {name}", "1 store", MICROSECONDS, (getattr(one, name),)))
    for machines in MACHINES:
        found = capacity(one, machines=machines, cores=CORES)
        what = f"{machines} machines of {CORES} cores"
        findings.add(Figure(CALCULATED, what, "one store", RATE, (found.one_store,)))
        findings.add(Figure(CALCULATED, what, f"{found.stores} stores", RATE, (found.all_stores,)))
    return findings
