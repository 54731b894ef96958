"""`klamm up`: run ZooKeeper and some nodes on this machine until Ctrl-C. The data stays for the next start."""

from collections.abc import Sequence
from contextlib import ExitStack
from posixpath import abspath, join
from typing import Final

from klamm.cli.output import print_error, print_line, print_table
from klamm.embedded.cluster import CannotStart, ClusterOptions, LocalCluster
from klamm.embedded.nodes import NodeProcess
from klamm.runtime.processes import pause_s
from klamm.runtime.signals import interrupted_by_stop_signals

_POLL_S: Final = 0.5
_MAX_NODES: Final = 1_000
_MAX_PORT: Final = 65_535


def up(options: ClusterOptions) -> int:
    """Run until a stop signal; returns the exit status. Raises KlammError when it cannot start."""
    _check_numbers(options)
    with ExitStack() as stack:
        stack.enter_context(interrupted_by_stop_signals())
        try:
            cluster = stack.enter_context(LocalCluster(options, on_killed=print_error))
            _start_cluster(cluster)
            _watch_processes(cluster)
        except KeyboardInterrupt:
            print_line("Stopping.")
            stack.close()
            print_line(f"Stopped. The data is in {abspath(options.directory)}.")
            return 0
    return 1


def _check_numbers(options: ClusterOptions) -> None:
    """Raise CannotStart for a number of nodes or a port that cannot be."""
    count, first = options.node_count, options.first_port
    if count < 1:
        raise CannotStart(f"--nodes {count} is not valid: a cluster needs at least one node. Give 1 or more.")
    if count > _MAX_NODES:
        raise CannotStart(f"--nodes {count} is not valid: one machine cannot run so many. Give at most {_MAX_NODES}.")
    if first and not 0 < first <= _MAX_PORT - count + 1:
        raise CannotStart(
            f"--port {first} is not valid: the ports of {count} nodes begin there. Give a number from 1 to "
            f"{_MAX_PORT - count + 1}, or 0 for free ports."
        )
    if not 0 <= options.zookeeper_port <= _MAX_PORT:
        raise CannotStart(
            f"--zookeeper-port {options.zookeeper_port} is not valid. Give a number from 1 to {_MAX_PORT}, or 0 for a "
            "free port."
        )


def _start_cluster(cluster: LocalCluster) -> None:
    """Start ZooKeeper and the nodes, and print their addresses."""
    if nodes := cluster.nodes_with_data:
        print_line(f"Using the data of an earlier run in {cluster.directory} ({', '.join(n.name for n in nodes)}).")
    if cluster.zookeeper is not None:
        print_line(f"Starting ZooKeeper on {cluster.zookeeper_connect}.")
    cluster.start_zookeeper()
    print_line(f"Starting {len(cluster.nodes)} node{'s' if len(cluster.nodes) > 1 else ''}.")
    cluster.start_nodes()
    print_table(
        ("node", "address", "data", "log"),
        [(n.broker_id, n.address, n.log_directory, n.output_path) for n in cluster.nodes],
    )
    print_line(f"Connect with bootstrap.servers={cluster.bootstrap}")
    print_line(f"ZooKeeper: {cluster.zookeeper_connect}")
    print_line(f"History of a partition: klamm explain TOPIC-PARTITION --data {cluster.directory}")
    print_line("Press Ctrl-C to stop. The data is kept.")


def _watch_processes(cluster: LocalCluster) -> None:
    """Report each process that ends; return when no node is running, or ZooKeeper ended."""
    running: Sequence[NodeProcess] = cluster.nodes
    while running:
        pause_s(_POLL_S)
        for node in running:
            if not node.is_running:
                print_error(node.exit_report())
        running = [node for node in running if node.is_running]
        if cluster.zookeeper is not None and not cluster.zookeeper.is_running:
            print_error(
                "ZooKeeper has ended, so the cluster is stopped. See the log of ZooKeeper, "
                f"{join(cluster.zookeeper.directory, 'zookeeper.log')}."
            )
            return
    print_error("All nodes have ended, so the cluster is stopped. See the logs of the nodes.")
