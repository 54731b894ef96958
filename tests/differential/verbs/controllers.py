"""Verbs: start, stop and replace controllers."""

from tests.differential.testbed import NODE_ID, Testbed

from klamm.model.ids import BrokerId
from klamm.zk import znodes


class ControllerVerbs(Testbed):
    async def start_controller(self) -> None:
        """Start the node under test."""
        await self.start_node()
        await self.end_step("start the controller")

    async def start_candidate(self, number: int) -> None:
        """Start a second node, which becomes controller if the first one ends."""
        await self.start_node(number)
        await self.end_step(f"start node {number}")

    async def stop_node(self, number: int = NODE_ID) -> None:
        """Stop a node: it closes its ZooKeeper session."""
        await self.nodes.pop(number).stop()
        await self.wait_until(lambda stat: stat is None, znodes.broker_path(number))
        await self.end_step(f"stop node {number}")

    async def expire(self, node: int = NODE_ID) -> None:
        """Its ZooKeeper session ends without its knowledge; it registers with a new one."""
        await self.expire_session(node)
        await self.end_step(f"the session of node {node} expires")

    async def delete_controller(self) -> None:
        """Delete `/controller`: the controller resigns, and as the only candidate it is elected again."""
        await self.client.delete(znodes.CONTROLLER)
        await self.end_step("delete /controller")

    async def usurp(self, broker: int) -> None:
        """Another broker becomes controller, with an epoch of its own, and does nothing."""
        epoch, stat = await self.client.get(znodes.CONTROLLER_EPOCH)
        await self.client.set(znodes.CONTROLLER_EPOCH, str(int(epoch or b"0") + 1).encode(), stat.version)
        await self.client.set(znodes.CONTROLLER, znodes.encode_controller(BrokerId(broker), 0))
        await self.end_step(f"broker {broker} becomes controller")
