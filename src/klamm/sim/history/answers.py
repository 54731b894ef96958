"""What controllers gave away for good: blocks of producer ids; and what they took away: topics."""

from dataclasses import dataclass, field

from klamm.controller.events import AllocateProducerIds
from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.sim.history.controllers import ControllerHistory
from klamm.sim.history.trace import EventEnded, TopicWritten


@dataclass(slots=True)
class AnswerHistory:
    controllers: ControllerHistory
    producer_id_blocks: dict[int, tuple[int, BrokerId]] = field(default_factory=dict)
    """First id -> (length, who got it)."""
    deleted_at: dict[str, int] = field(default_factory=dict)
    """Topics that a controller deleted, and are not there again: the zxid."""

    def on_event_ended(self, event: EventEnded) -> None:
        asked = event.event
        if isinstance(asked, AllocateProducerIds) and asked.reply.result().error is ErrorCode.NONE:
            answer = asked.reply.result()
            self.producer_id_blocks[answer.first] = answer.length, asked.broker

    def on_topic_written(self, event: TopicWritten) -> None:
        if event.after is not None:
            self.deleted_at.pop(event.topic, None)
        elif event.session in self.controllers.sessions:
            self.deleted_at[event.topic] = self.controllers.at.zxid
