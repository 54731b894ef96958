"""Elections that someone asked for. Source: KafkaController.scala (3.9)."""

from klamm.controller.events import TopicUncleanLeaderElectionEnable, UncleanLeaderElectionEnable
from klamm.controller.handlers.partitions import trigger_online
from klamm.controller.workbench import Workbench


async def on_unclean_enabled(bench: Workbench, event: UncleanLeaderElectionEnable) -> None:
    """The brokers' default changed: partitions without a leader may find one now; the topics' configs decide."""
    await trigger_online(bench)


async def on_topic_unclean_enabled(bench: Workbench, event: TopicUncleanLeaderElectionEnable) -> None:
    await trigger_online(bench, event.topic)
