"""Verbs: brokers register, restart, end, and change their registration."""

from collections.abc import Sequence

from tests.differential import normalize
from tests.differential.testbed import Testbed

from klamm.zk import znodes
from klamm.zk.operations import Delete
from klamm.zk.registrations import encode_registration


class BrokerVerbs(Testbed):
    async def start(self, *brokers: int, short_session: bool = False) -> None:
        """Start these brokers, one after the other."""
        for number in brokers:
            await self.start_broker(number, short_session)
        await self.end_step(f"start {normalize.words(brokers)}")

    async def kill(self, *brokers: int) -> None:
        """Close the sessions of these brokers, one after the other."""
        for number in brokers:
            await self.brokers[number].die()
        await self.end_step(f"kill {normalize.words(brokers)}")

    async def kill_together(self, *brokers: int) -> None:
        """Remove the registrations of these brokers in one transaction: one event for the controller."""
        await self.client.multi([Delete(znodes.broker_path(number)) for number in brokers])
        for number in brokers:
            await self.brokers[number].die()
        await self.end_step(f"kill {normalize.words(brokers)} together")

    async def vanish(self, broker: int) -> None:
        """Let the broker's session expire."""
        await self.brokers[broker].vanish()
        path = znodes.broker_path(broker)
        await self.wait_until(lambda stat: stat is None, path)
        await self.end_step(f"{broker} vanishes")

    async def bounce(self, broker: int, others_die: Sequence[int] = ()) -> None:
        """Replace the broker's registration at once; `others_die` are removed in the same transaction."""
        recorder = self.brokers[broker]
        self.collect_requests()
        await recorder.bounce(others_die)
        self.remember_session(recorder)
        for other in others_die:
            await self.brokers[other].die()
        await self.end_step(f"bounce {broker}{f' while {normalize.words(others_die)} die' if others_die else ''}")

    async def change_endpoints(self, broker: int, rack: str) -> None:
        """Its registration is written again, as if its listeners changed."""
        words = b'"version":5,"rack":"%b"' % rack.encode()
        await self.brokers[broker].change_registration(lambda was: was.replace(b'"version":5', words))
        await self.end_step(f"{broker} registers anew, rack {rack}")

    async def older_registration(self, broker: int, version: int) -> None:
        """Its registration as brokers wrote it before features (4), listener names (3) and listeners (2)."""
        recorder = self.brokers[broker]
        content = encode_registration(recorder.broker, 0, version=version)
        await recorder.change_registration(lambda _: content)
        await self.end_step(f"{broker} registers as version {version}")
