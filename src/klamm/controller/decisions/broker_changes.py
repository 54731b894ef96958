"""Which brokers are new, bounced or dead, from their registrations. Source: processBrokerChange (3.9)."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from klamm.model.brokers import Broker
from klamm.model.ids import BrokerId


class BrokerChanges(NamedTuple):
    """Brokers that registered, brokers that restarted unnoticed (bounced), and brokers that are gone."""

    new: tuple[Broker, ...]
    bounced: tuple[Broker, ...]  # restarted before their death was noticed
    dead: tuple[BrokerId, ...]

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.new or self.bounced or self.dead)


def diff_brokers(
    known: Mapping[BrokerId, Broker],
    current: Mapping[BrokerId, Broker],
    in_transition: Collection[BrokerId] = (),
) -> BrokerChanges:
    """Compare registrations; a known id with a newer epoch (czxid) is a bounce. Each result is in order of ids.

    `in_transition` has brokers whose last change was not handled to its end: they are reported again. One that was dead
    then and is registered now is reported as bounced, so that its death is handled as well.
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
