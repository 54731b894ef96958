"""`klamm up`: ZooKeeper and a few nodes on this machine, until Ctrl-C; what they hold stays for the next start."""

from collections.abc import Sequence
from contextlib import ExitStack
from posixpath import abspath, join
from typing import Final

from klamm.cli.output import complain, say, show
from klamm.embedded.cluster import CannotStart, ClusterOptions, LocalCluster
from klamm.embedded.nodes import NodeProcess
from klamm.runtime.processes import pause_s
from klamm.runtime.signals import stopped_by_signals

WATCH_INTERVAL_S: Final = 0.5


def up(options: ClusterOptions) -> int:
    """Run until asked to stop; the exit status. Raises KlammError where it cannot start."""
    if options.node_count < 1:
        raise CannotStart(f"--nodes {options.node_count}: a cluster has at least one node")
    with ExitStack() as stack:
        stack.enter_context(stopped_by_signals())
        try:
            cluster = stack.enter_context(LocalCluster(options, complain=complain))
            _start(cluster)
            _watch(cluster)
        except KeyboardInterrupt:
            say("stopping")
            stack.close()
            say("stopped; the data stays in " + abspath(options.directory))
            return 0
    return 1


def _start(cluster: LocalCluster) -> None:
    if found := cluster.found_data:
        say(f"found the data of an earlier run in {cluster.directory} ({', '.join(n.name for n in found)})")
    if cluster.zookeeper is not None:
        say(f"starting ZooKeeper on {cluster.zookeeper_connect}")
    cluster.start_zookeeper()
    say(f"starting {len(cluster.nodes)} nodes")
    cluster.start_nodes()
    show(
        ("node", "address", "data", "log"),
        [(n.broker_id, n.address, n.log_directory, n.output_path) for n in cluster.nodes],
    )
    say(f"connect with bootstrap.servers={cluster.bootstrap}")
    say(f"ZooKeeper is {cluster.zookeeper_connect}")
    say(f"a partition's story: klamm explain TOPIC-PARTITION --data {cluster.directory}")
    say("Ctrl-C stops everything and keeps the data")


def _watch(cluster: LocalCluster) -> None:
    """Say once of each process that it ended; return when no node is left."""
    watched: Sequence[NodeProcess] = cluster.nodes
    while watched:
        pause_s(WATCH_INTERVAL_S)
        for node in watched:
            if not node.is_running:
                complain(node.why_ended())
        watched = [node for node in watched if node.is_running]
        if cluster.zookeeper is not None and not cluster.zookeeper.is_running:
            complain(f"ZooKeeper ended; its log is {join(cluster.zookeeper.directory, 'zookeeper.log')}")
            return
    complain("no node is left")
