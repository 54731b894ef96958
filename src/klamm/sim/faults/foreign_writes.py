"""What another client may do to a znode at the moment when a node reads it: an operator, a tool, another broker."""

from typing import Final

from klamm.model.assignment import ReplicaAssignment
from klamm.model.ids import BrokerId
from klamm.sim.actions import ScheduledCluster
from klamm.zk import znodes
from klamm.zk.operations import Create, Delete, Op, Set

_NEW_TOPIC: Final = "foreign"
_NOT_WRITTEN: Final = (znodes.CONTROLLER_EPOCH, znodes.CLUSTER_ID)
"""Nobody but a controller, or nobody at all, writes these."""


def write_to_what_is_read(cluster: ScheduledCluster, path: str) -> None:
    """Change this znode or its children as another client might; does nothing for znodes of controllers alone."""
    if path.startswith(f"{znodes.BROKER_IDS}/"):
        _end_sessions(cluster, path)
    elif (op := _change_of(cluster, path)) is not None:
        cluster.log(f"another client writes {op.path}")
        cluster.ensemble.write(0, [op], ())


def _end_sessions(cluster: ScheduledCluster, path: str) -> None:
    """End the session that holds the registration at this path."""
    node = cluster.tree.get(path)
    if node is not None and node.owner and cluster.ensemble.has_quorum:
        cluster.log(f"the session that registered {path} ends")
        cluster.ensemble.end_session(node.owner)


def _change_of(cluster: ScheduledCluster, path: str) -> Op | None:
    """Return an operation that changes what a read of this path returns; None if there is none for it."""
    node = cluster.tree.get(path)
    if node is None or path.endswith("/state") or path in _NOT_WRITTEN:
        return None
    if path == znodes.CONTROLLER:
        return Delete(path)
    topics = cluster.tree.get(znodes.TOPICS)
    names = list(topics.children) if topics is not None else []
    if path == znodes.TOPICS:
        content = znodes.encode_topic(None, {0: ReplicaAssignment((BrokerId(1),))})
        return None if _NEW_TOPIC in names else Create(znodes.topic_path(_NEW_TOPIC), content)
    if path == znodes.DELETE_TOPICS:
        missing_names = [name for name in names if name not in node.children]
        return Create(znodes.delete_topic_path(missing_names[0]), None) if missing_names else None
    if path == znodes.CONFIG_CHANGES:
        return Create(f"{path}/config_change_", b'{"version":2,"entity_path":"topics/t1"}', sequential=True)
    return Set(path, node.data, -1)
