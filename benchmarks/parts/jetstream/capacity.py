"""What a cluster would carry, calculated from the processor time that a task costs its processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor
from statistics import median

BUSY = 0.7
"""The share of a core that is used at most: above it queues of requests grow."""


@dataclass(frozen=True)
class Cost:
    """Microseconds of processor time of one task: of the owner, of all replicas of the log, of the worker."""

    owner: float
    nodes: float
    worker: float

    @property
    def total(self) -> float:
        return self.owner + self.nodes + self.worker

    @classmethod
    def median(cls, costs: "Sequence[Cost]") -> "Cost":
        return cls(
            owner=median(cost.owner for cost in costs),
            nodes=median(cost.nodes for cost in costs),
            worker=median(cost.worker for cost in costs),
        )


@dataclass(frozen=True)
class Capacity:
    """Tasks a second, enqueued in bulk and run by handlers that take no time."""

    one_store: float
    stores: int
    all_stores: float


def capacity(cost: Cost, *, machines: int, cores: int) -> Capacity:
    """Return what a cluster carries whose machines run nodes, owners and workers alike.

    One store is bounded by the core of its owner. Several are bounded by all cores together; the owners, the
    leaders of the streams and the workers are spread evenly. Handlers, network and disks are not counted.
    """
    one_store = BUSY * 1e6 / cost.owner
    every_core = BUSY * 1e6 * machines * cores / cost.total
    stores = max(1, floor(every_core / one_store))
    return Capacity(min(one_store, every_core), stores, min(stores * one_store, every_core))
