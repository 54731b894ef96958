"""What must hold after a campaign with both kinds of broker: no errors logged, equal replicas, sound files."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.support.dump_log import dump_log_directories
from tests.support.mixed_cluster import MixedCluster, log_dirs_of
from tests.support.replica_verification import verify_stored

from klamm.embedded.nodes import NodeProcess

MAX_SHOWN: Final = 10


class Checked(NamedTuple):
    """What was done, in lines for a person, and what is wrong."""

    text: str
    problems: list[str]


def check_files_of_all(cluster: MixedCluster, compacted: Sequence[str]) -> Checked:
    """Stop all nodes, and check what they logged, their replicas and all their files; `compacted` names topics."""
    problems = [text for node in cluster.nodes for text in _errors_logged(cluster, node)]
    cluster.stop()
    log_dirs = [log_dir for node in cluster.nodes for log_dir in log_dirs_of(node)]
    verified = verify_stored(log_dirs)
    segments, complaints = dump_log_directories(log_dirs, compacted)
    return Checked(f"{verified}, {segments} segments dumped", [*problems, *verified.problems, *complaints])


def print_problems(problems: Sequence[str]) -> None:
    """Print the first problems, and how many more there are."""
    for problem in problems[:MAX_SHOWN]:
        print(f"       WRONG: {problem[:500]}", flush=True)
    if len(problems) > MAX_SHOWN:
        print(f"       and {len(problems) - MAX_SHOWN} more", flush=True)


class Roles:
    """How often each kind of broker was found as leader and as controller in a mixed cluster."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics
        self._counts: Counter[str] = Counter()

    def look(self, cluster: MixedCluster) -> None:
        """Count the present roles."""
        leaders = [broker_id for topic in self._topics for broker_id in cluster.leaders(topic).values()]
        for role, broker_ids in {"controller": [cluster.controller_id], "leader": leaders}.items():
            self._counts.update(f"{_kind(cluster, broker_id)} as {role}" for broker_id in broker_ids if broker_id >= 0)

    def __str__(self) -> str:
        return ", ".join(f"{count} times {role}" for role, count in sorted(self._counts.items()))


def _kind(cluster: MixedCluster, broker_id: int) -> str:
    return "Apache Kafka" if broker_id in cluster.kafka_ids else "klamm"


def _errors_logged(cluster: MixedCluster, node: NodeProcess) -> list[str]:
    """Errors in the log of a node, to which both kinds may have written."""
    errors = [line for line in cluster.warnings(node.broker_id) if re.search(r"level=(error|critical)", line)]
    return [f"{node.name} logged: {text}" for text in (*cluster.complaints(node.broker_id), *errors)]
