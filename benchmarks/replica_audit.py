"""Verifying replicas, as `klamm replicas verify` does: megabytes a second, from brokers and from log directories.

    python -m benchmarks.replica_audit [--mib 512] [--partitions 8] [--nodes 3] [--bytes 1000] [--rounds 3]

Bytes are those of record batches in all replicas: three replicas of 512 MiB are 1,536 MiB to verify. Beside wall time
stands the processor time of the process that verifies; on a busy machine it is the steadier figure. The files are in
the page cache, because they were just written.
"""

import argparse
import tempfile
from functools import partial
from pathlib import Path

from tests.support.cluster import Cluster

from benchmarks.spark_read import Spent, fastest_round, fill
from klamm.audit.replicas.partitions import fetched_partitions, stored_partitions
from klamm.audit.replicas.verification import verify_partition
from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.model.cluster import parse_addresses
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.disk import RealDisk

TIMEOUT_S = 60.0
TOPIC = "audited"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="of keys and values, before replication")
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--nodes", type=int, default=3, help="there is a replica on each")
    parser.add_argument("--bytes", type=int, default=1_000, help="of the key and value of a record")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    records = (options.mib << 20) // options.bytes
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory), options.nodes) as cluster:
        fill(cluster, TOPIC, records, options.bytes, "none")
        log_dirs = [node.log_directory for node in cluster.nodes]
        cluster.wait_until("high watermarks are checkpointed", lambda: verify_files(log_dirs) == records)
        size = sum(path.stat().st_size for d in log_dirs for path in Path(d).glob(f"{TOPIC}-*/*.log"))
        found = fastest_round(options.rounds, partial(verify_by_fetch, cluster.bootstrap, records))
        print_line("from brokers, by Fetch", size, found)
        print_line("from log directories", size, fastest_round(options.rounds, partial(verify_files, log_dirs)))


def verify_by_fetch(bootstrap: str, records: int) -> None:
    """Verify all replicas that brokers have; fails unless all records were compared."""
    settings = BlockingSettings("benchmark", TIMEOUT_S, TIMEOUT_S)
    with BlockingClient(RealBlockingWorld(), parse_addresses(bootstrap), settings) as client:
        results = [verify_partition(f.partition, f.replicas) for f in fetched_partitions(client, [TOPIC], TIMEOUT_S)]
    assert not any(r.divergences or r.unavailable for r in results), results
    assert sum(r.end - r.start for r in results) == records


def verify_files(log_dirs: list[str]) -> int:
    """Verify all replicas in the log directories; the number of offsets that were compared."""
    results = [verify_partition(f.partition, f.replicas) for f in stored_partitions(RealDisk(), log_dirs, [TOPIC])]
    assert not any(r.divergences or r.unavailable for r in results), results
    return sum(r.end - r.start for r in results)


def print_line(what: str, size: int, spent: Spent) -> None:
    print(
        f"{what:<24} {size / spent.wall_s / 1e6:7.0f} MB/s, {size / spent.cpu_s / 1e6:7.0f} MB per processor second "
        f"({size / 1e6:,.0f} MB in {spent.wall_s:.2f} s)",
        flush=True,
    )


if __name__ == "__main__":
    main()
