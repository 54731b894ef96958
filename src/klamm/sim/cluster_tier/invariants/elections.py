"""Elections as ZooKeeper shows them, with what the operators of this tier have asked for."""

from klamm.sim.cluster_tier.history import TierHistory
from klamm.sim.history.trace import StateWritten


def leaders_come_from_the_isr(history: TierHistory, event: StateWritten) -> str | None:
    """A new leader was in the ISR before, unless an operator has asked for an unclean election in the topic."""
    before, after, p = event.before, event.after, event.partition
    if before is None or not after.has_leader or after.leader in (before.leader, *before.isr):
        return None
    facts = history.topics.get(p.topic)
    if facts is not None and facts.may_be_unclean:
        return None
    return f"{p}: new leader {after.leader} was not in ISR {before.isr}"
