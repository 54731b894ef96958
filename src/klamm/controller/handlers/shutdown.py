"""Controlled shutdown of a broker. Source: KafkaController.doControlledShutdown (3.9)."""

from klamm.controller.decisions.controlled_shutdown import (
    ControlledShutdownPlan,
    check_controlled_shutdown,
    plan_controlled_shutdown,
    remaining_leaders,
)
from klamm.controller.decisions.elections import elect_for_controlled_shutdown
from klamm.controller.events import ControlledShutdown, ShutdownAnswer
from klamm.controller.handlers.partitions import bring_online
from klamm.controller.handlers.replicas import replicas_offline
from klamm.controller.term_context import TermContext
from klamm.model.errors import ErrorCode
from klamm.telemetry.journal import by_topic


async def on_controlled_shutdown(term: TermContext, event: ControlledShutdown) -> None:
    """Move the broker's leaders, stop its followers, and answer with the partitions that it still leads."""
    context, broker = term.context, event.broker
    error = check_controlled_shutdown(context, broker, event.broker_epoch)
    if error is not ErrorCode.NONE:
        event.refuse(error)
        return
    context.begin_shutdown(broker)
    plan = ControlledShutdownPlan([], [])
    async for chunk in term.slices.over(list(context.replicas_on(broker))):
        plan_controlled_shutdown(context, broker, chunk, plan)
    await bring_online(term, plan.led, elect_for_controlled_shutdown)
    async for chunk in term.slices.over(plan.followed):
        for p in chunk:
            term.batch.add_stop_replica([broker], p, delete=False)
    await term.send_requests()
    await replicas_offline(term, {broker: plan.followed})
    remaining = remaining_leaders(context, broker)
    term.journal.line(term.cause, "controlled-shutdown", broker=broker, partitions=by_topic(remaining))
    event.answer(ShutdownAnswer(ErrorCode.NONE, tuple(p.key for p in remaining)))
