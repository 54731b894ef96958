"""Every invariant with its number, what it looks at, and the bugs of Kafka's history that it would have caught.

Its name is the function's, its sentence the first line of the function's docstring. To add one: write the function in
the module of its subject, put a row here, and break the code it watches once, to see it speak.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from klamm.sim.invariants import epochs, isr, leaders, liveness, office, orders, registrations
from klamm.sim.invariants.seen import Always, AtRest
from klamm.sim.trace import Elected, Event, Mutation, OrderReceived, OrderSent, StateWritten


class Row(NamedTuple):
    number: int
    check: Any
    sees: tuple[type[Event], ...] = ()
    """The events it is asked about; empty for one that is asked at rest."""
    tickets: str = ""

    @property
    def name(self) -> str:
        return str(self.check.__name__)

    @property
    def sentence(self) -> str:
        return str(self.check.__doc__).partition("\n")[0]


_WRITTEN: Final = (StateWritten,)
_ORDER: Final = (OrderReceived,)

ALWAYS: Final = (
    Row(1, epochs.one_actor_per_epoch, _ORDER, "KAFKA-532"),
    Row(2, epochs.epoch_counts_elections, (Elected,)),
    Row(3, epochs.fenced_writes, (Mutation,), "KAFKA-6082, KAFKA-1096, KAFKA-4447"),
    Row(5, epochs.followed_epochs_are_monotone, _ORDER, "KAFKA-532"),
    Row(7, leaders.leader_epoch_is_monotone, _WRITTEN, "KIP-101"),
    Row(8, leaders.one_leader_per_epoch, (StateWritten, OrderSent), "KAFKA-1188"),
    Row(9, orders.orders_tell_what_was_written, _ORDER, "KIP-497"),
    Row(10, leaders.leader_is_in_sync, _WRITTEN),
    Row(11, isr.isr_is_never_empty, _WRITTEN, "KAFKA-708, KAFKA-5083"),
    Row(12, isr.isr_is_within_replicas, _WRITTEN, "KAFKA-9672"),
    Row(13, leaders.elections_are_clean, _WRITTEN),
    Row(16, leaders.partitions_begin_at_zero, _WRITTEN),
)
"""After every event that they see."""

AT_REST: Final = (
    Row(34, office.memory_equals_zookeeper, (), "KAFKA-849, KAFKA-9212"),
    Row(36, registrations.registrations_are_true, (), "KAFKA-1387, KAFKA-7165, KAFKA-14845"),
    Row(40, liveness.one_controller_acts, (), "KAFKA-13407, KAFKA-4229"),
    Row(41, liveness.every_partition_is_led, (), "KAFKA-3096, KAFKA-3143"),
    Row(42, liveness.isrs_are_whole, (), "KAFKA-12751, KAFKA-14144"),
    Row(44, liveness.everybody_knows, (), "KAFKA-9212, KAFKA-7482"),
)
"""Once faults are over and there was time."""


def by_event() -> Mapping[type[Event], tuple[tuple[str, Always], ...]]:
    """What to ask about each kind of event."""
    kinds = {kind: None for row in ALWAYS for kind in row.sees}
    return {kind: tuple((row.name, row.check) for row in ALWAYS if kind in row.sees) for kind in kinds}


def at_rest() -> tuple[tuple[str, AtRest], ...]:
    return tuple((row.name, row.check) for row in AT_REST)
