"""The names of all operations, by which scripts call them."""

from typing import Final

from klamm.sim.cluster_tier import operations, replica_operations
from klamm.sim.cluster_tier.operations import Operation

FIRST_OPERATIONS: Final[dict[str, Operation]] = {
    "create topic": operations.create_topic,
    "delete topic": operations.delete_topic,
    "add partitions": operations.add_partitions,
    "reassign": operations.reassign,
    "elect preferred": operations.elect_preferred,
    "elect unclean": operations.elect_unclean,
    "change segment size": operations.change_segment_size,
    "controlled restart": operations.stop_in_order,
}
"""A seed chooses among these for the times at which faults and operations take turns."""
ADDED_OPERATIONS: Final[dict[str, Operation]] = {
    "move log": replica_operations.move_log,
    "delete records": replica_operations.delete_records,
    "change retention": operations.change_retention,
    "throttle": operations.throttle,
}
"""Operations that came later: they have times of their own, so that the others stay where they were."""
OPERATIONS: Final = {**FIRST_OPERATIONS, **ADDED_OPERATIONS}
