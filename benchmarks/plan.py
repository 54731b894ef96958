"""How fast a large cluster is balanced: brokers added, and one drained.

    python -m benchmarks.plan [--partitions 1000000] [--brokers 100] [--added 10]

Sizes and rates differ by a factor of a hundred. The goal is 5 s for the plan of a million partitions.
"""

import argparse
import time
from dataclasses import replace

import numpy as np

from klamm.plan.arrays import NO_REPLICA, PlanInput, replica_weights
from klamm.plan.planner import Extent, make_plan
from klamm.plan.waves import WaveLimits, plan_waves

RACKS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=1_000_000)
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--added", type=int, default=10)
    options = parser.parse_args()
    given = cluster(options.partitions, options.brokers, options.added)
    measure(f"{options.added} brokers added", given)
    drained = np.arange(len(given.ids)) == 0
    without = replace(given, drained=drained, receives=~drained)
    measure("and broker 0 drained", without)
    measure("broker 0 drained alone", without, Extent.REQUIRED)
    measure("2 replicas of each", replace(given, wanted=given.wanted - 1), Extent.REQUIRED)
    padded = np.pad(given.replicas, ((0, 0), (0, 1)), constant_values=NO_REPLICA)
    measure("4 replicas of each", replace(given, replicas=padded, wanted=given.wanted + 1), Extent.REQUIRED)
    measure("racks changed", replace(given, racks=(given.ids // 2 % RACKS).astype(np.int32)))
    measure("leaders only", given, Extent.LEADERS)


def cluster(partitions: int, brokers: int, added: int) -> PlanInput:
    """Three replicas of each partition in three racks, on all brokers but the added ones."""
    rng = np.random.default_rng(1)
    of_rack = [np.arange(rack, brokers, RACKS, dtype=np.int32) for rack in range(RACKS)]
    columns = [rng.choice(of, partitions) for of in of_rack]
    replicas = rng.permuted(np.stack(columns, axis=1), axis=1)
    count = brokers + added
    ids = np.arange(count, dtype=np.int32)
    sizes, rates = (np.exp(rng.uniform(0, np.log(100), partitions)) for _ in range(2))
    return PlanInput(
        ids=ids,
        racks=ids % RACKS,
        alive=np.ones(count, bool),
        receives=np.ones(count, bool),
        drained=np.zeros(count, bool),
        replicas=replicas,
        wanted=np.full(partitions, RACKS, np.int32),
        movable=np.ones(partitions, bool),
        sizes=sizes * 1e6,
        rates=rates * 1e3,
        behind=np.zeros(partitions),
        without_leader=np.zeros(partitions),
        leading=np.ones(count),
        names=range(partitions),
        rack_names=[str(rack) for rack in range(RACKS)],
    )


def measure(what: str, given: PlanInput, extent: Extent = Extent.BALANCE) -> None:
    begun, used = time.perf_counter(), time.process_time()
    plan = make_plan(given, extent)
    planned, used = time.perf_counter() - begun, time.process_time() - used
    changed = plan.changed(given.replicas)
    begun = time.perf_counter()
    waves = plan_waves(changed, given.replicas, plan.replicas, given.sizes.tolist(), WaveLimits(1_000, 10**12))
    cut = time.perf_counter() - begun
    weights = np.repeat(replica_weights(given), given.replicas.shape[1])
    loads = [np.bincount(of.ravel() + 1, weights, len(given.ids) + 1)[1:] for of in (given.replicas, plan.replicas)]
    before, after = (of[given.receives].max() / of[given.receives].mean() for of in loads)
    print(
        f"{what:24} {planned:5.2f} s planned ({used:.2f} s of processor time), {cut:5.2f} s in {len(waves):,} waves; "
        f"{len(changed):,} of {len(given.replicas):,} partitions change; most loaded broker "
        f"{before:.2f} -> {after:.2f} of the mean"
    )


if __name__ == "__main__":
    main()
