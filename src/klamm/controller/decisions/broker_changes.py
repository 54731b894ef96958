"""Who came, went and came back unseen: registrations compared with what we knew. Source: processBrokerChange (3.9)."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId


class BrokerChanges(NamedTuple):
    new: tuple[Broker, ...]
    bounced: tuple[Broker, ...]  # restarted faster than anyone saw them gone
    dead: tuple[BrokerId, ...]

    def __bool__(self) -> bool:
        return bool(self.new or self.bounced or self.dead)


def diff_brokers(
    known: Mapping[BrokerId, Broker],
    current: Mapping[BrokerId, Broker],
    in_transition: Collection[BrokerId] = (),
) -> BrokerChanges:
    """Each part in order of ids; a newer epoch (czxid) under a known id is a bounce.

    A broker `in_transition` counts once more as what it was. One that went so and is here by now bounced: what
    follows from its going is still to be done.
    """
    new, bounced = [], []
    for b in sorted(current):
        is_newer = b in known and current[b].epoch > known[b].epoch
        if is_newer or (b in in_transition and b not in known):
            bounced.append(current[b])
        elif b in in_transition or b not in known:
            new.append(current[b])
    return BrokerChanges(
        tuple(new), tuple(bounced), tuple(b for b in sorted({*known, *in_transition}) if b not in current)
    )
