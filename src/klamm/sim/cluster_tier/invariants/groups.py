"""Consumer groups: who owns what, and whose commits are accepted; judged from requests and answers of members."""

from klamm.sim.cluster_tier.history import OFFSETS_TOPIC, TierHistory
from klamm.sim.cluster_tier.invariants.rest import RestingCluster
from klamm.sim.cluster_tier.trace import Assigned, CommitEnded


def partitions_have_one_owner(history: TierHistory, event: Assigned) -> str | None:
    """In one generation of a group no partition is assigned to two members.

    A static member that joins again gets a new member id and keeps its partitions, in Kafka without a new generation.
    """
    if not history.is_untouched(OFFSETS_TOPIC):
        return None
    for other in history.generations.get(event.group, {}).get(event.generation, ()):
        is_same = other.member == event.member or (event.instance is not None and other.instance == event.instance)
        if not is_same and (both := set(other.partitions) & set(event.partitions)):
            return (
                f"{event.group}, generation {event.generation}: {min(both)} is assigned to {other.member} and to"
                f" {event.member}"
            )
    return None


def commits_of_former_generations_are_refused(history: TierHistory, event: CommitEnded) -> str | None:
    """Once a member has its partitions in a generation, no commit of an older generation is accepted."""
    if not event.is_stored or event.generation < 0 or not history.is_untouched(OFFSETS_TOPIC):
        return None
    for generation, members in history.generations.get(event.group, {}).items():
        if generation > event.generation and members[0].at_s < event.began_s:
            return (
                f"{event.group}: a commit of generation {event.generation}, sent at {event.began_s:.3f} s, is accepted;"
                f" generation {generation} began before {members[0].at_s:.3f} s"
            )
    return None


def every_partition_is_owned(cluster: RestingCluster) -> str | None:
    """At rest the newest generation of a group gives every partition of its topics to a member that is there."""
    history = cluster.tier
    for group, topic in cluster.subscriptions.items():
        if OFFSETS_TOPIC in history.destroyed:
            continue
        by_time = sorted((a for told in history.generations.get(group, {}).values() for a in told), key=_when)
        if not by_time:
            return f"{group}: no member was ever assigned anything"
        newest = by_time[-1].generation  # not the highest: after a power loss a coordinator may count from less
        last_of = {assigned.member: assigned for assigned in by_time}
        present = [a for a in last_of.values() if (group, a.member) not in history.gone_members]
        owned = {p for assigned in present if assigned.generation == newest for p in assigned.partitions}
        missing = sorted(p for p in cluster.final_reads if p.topic == topic and p not in owned)
        if missing:
            return f"{group}: nobody owns {missing[0]} in generation {newest}, the newest"
    return None


def _when(assigned: Assigned) -> float:
    """The time of the assignment."""
    return assigned.at_s
