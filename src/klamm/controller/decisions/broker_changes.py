"""Who came, went and came back unseen: registrations compared with what we knew. Source: processBrokerChange (3.9)."""

from collections.abc import Mapping
from typing import NamedTuple

from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId


class BrokerChanges(NamedTuple):
    new: tuple[Broker, ...]
    bounced: tuple[Broker, ...]  # restarted faster than anyone saw them gone
    dead: tuple[BrokerId, ...]

    def __bool__(self) -> bool:
        return bool(self.new or self.bounced or self.dead)


def diff_brokers(known: Mapping[BrokerId, Broker], current: Mapping[BrokerId, Broker]) -> BrokerChanges:
    """Each part in order of ids; a newer epoch (czxid) under a known id is a bounce."""
    return BrokerChanges(
        new=tuple(current[b] for b in sorted(current) if b not in known),
        bounced=tuple(current[b] for b in sorted(current) if b in known and current[b].epoch > known[b].epoch),
        dead=tuple(b for b in sorted(known) if b not in current),
    )
