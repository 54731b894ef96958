"""What odd leaders ask of a controller in simulated clusters."""

from types import SimpleNamespace

import pytest
from tests.support.controller_room import Room

from klamm.controller.settings import ControllerSettings, parse_ibp
from klamm.model.ids import BrokerId, TopicPartition
from klamm.sim.workload.controller_requests import _invalid_alter_partition


@pytest.mark.parametrize(("brokers", "asker"), [([1], None), ([1, 2], 2)], ids=["no other broker", "another"])
async def test_the_simulations_alter_partition_from_a_wrong_leader_is_sent_by_another_broker(
    brokers: list[int], asker: int | None
) -> None:
    """The leader's own request was carried out, and it knew nothing of it."""
    room = await Room.open(brokers, {"a": [(1,)]}, ControllerSettings(BrokerId(1), ibp=parse_ibp("3.9-IV0")))
    broker = SimpleNamespace(controller=SimpleNamespace(term=room.term))

    request = _invalid_alter_partition(broker, TopicPartition("a", 0), "another leader")  # type: ignore[arg-type]

    assert (request and request.broker_id) == asker
