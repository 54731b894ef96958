"""The parts of a node that exist before it is registered: ports, log directories, throttles.

Source: KafkaServer.startup, LogManager.scala (3.9).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import structlog

from klamm.broker.context import NodeContext
from klamm.broker.identity import write_pid
from klamm.broker.lifecycle import BrokerState, CannotStart, Lifecycle, Step
from klamm.broker.listeners import BoundListeners
from klamm.broker.log_dir_failures import LogDirFailures
from klamm.broker.replication_throttles import ReplicationThrottles
from klamm.broker.settings import cleaner_settings, log_settings, scrubber_settings, server_limits
from klamm.config.topic_config import KEEP_RECORDS, correct_topic_config
from klamm.log.cleaner.cleaner import LogCleaner
from klamm.log.errors import BadLogDirectory
from klamm.log.manager import LogManager
from klamm.log.registry import DirectoryFailure
from klamm.log.repair.scrubber import LogScrubber
from klamm.net.server import Server
from klamm.replication.quota import ReplicationQuotas
from klamm.runtime.network import reason_of

log = structlog.get_logger("node")


class Storage(NamedTuple):
    """The parts of a node that exist before it is registered."""

    server: Server
    listeners: BoundListeners
    log_dir_failures: LogDirFailures
    logs: LogManager
    cleaner: LogCleaner
    scrubber: LogScrubber
    throttles: ReplicationThrottles
    quotas: ReplicationQuotas


def build_storage(context: NodeContext, lifecycle: Lifecycle) -> Storage:
    """Create the listeners, the log manager and the throttles; they start with `lifecycle`."""
    config, world = context.config, context.world
    quotas = ReplicationQuotas.new(
        _loop_time_ms, config.replication_quota_window_num, config.replication_quota_window_size_seconds
    )
    throttles = ReplicationThrottles(quotas, context.broker_id)
    throttles.rates_changed(context.dynamic)
    server = Server(world.network, server_limits(config), config.inter_broker_listener)
    listeners = lifecycle.add("listeners", BoundListeners(server, config, world.network))
    failures = lifecycle.add("log directory failures", LogDirFailures(context))

    def on_directory_failed(failure: DirectoryFailure) -> None:
        """Hand the failure of a log directory to the parts of the broker that act on it."""
        failures.on_failure(failure, logs)

    logs = LogManager(
        world,
        config.log_directories,
        context.broker_id,
        context.cluster_id,
        config.given,
        log_settings(config),
        on_directory_failed,
    )
    cleaner = LogCleaner(world, logs, cleaner_settings(config))
    scrubber = LogScrubber(world, logs, scrubber_settings(config))
    storage = Storage(server, listeners, failures, logs, cleaner, scrubber, throttles, quotas)
    lifecycle.add("logs", Step(lambda: _load_logs(context, storage), logs_closer(context, logs)))
    return storage


async def _load_logs(context: NodeContext, storage: Storage) -> None:
    """Open every log, with the config overrides of its topic.

    A log whose partition is no longer assigned to this broker is kept until the controller sends StopReplica.
    """
    context.status.state = BrokerState.RECOVERY
    store = context.store()
    overrides, unreadable = await store.read_committed_topic_configs(await store.list_topics())
    for topic, reason in unreadable.items():
        log.error(
            "topic config cannot be read; until it is changed, the topic's records are neither deleted nor compacted",
            topic=topic,
            reason=reason,
            action=correct_topic_config(topic),
        )
        overrides[topic] = dict(KEEP_RECORDS)
    for topic, own in overrides.items():
        storage.throttles.topic_changed(topic, own)
    try:
        await storage.logs.load(overrides)
    except BadLogDirectory as error:
        raise CannotStart(str(error)) from error
    _write_pid(context, storage.logs)


def _write_pid(context: NodeContext, logs: LogManager) -> None:
    """Write the process id to each log directory, so that `klamm node stop` finds it after one of them failed.

    A full disk must not keep a node from starting and deleting records.
    """
    for directory in logs.live_directories:
        try:
            write_pid(context.world.disk, directory, context.world.process_id)
        except OSError as error:
            log.warning(
                "cannot write the process id",
                directory=directory,
                reason=reason_of(error),
                action="Free space on the disk. Until the next start, stop the node by a signal if klamm node stop "
                "does not find its process.",
            )


def logs_closer(context: NodeContext, logs: LogManager) -> Callable[[], Awaitable[None]]:
    """Return the coroutine function that closes all logs when the node stops."""
    return lambda: logs.close(context.status.broker_epoch)


def _loop_time_ms() -> float:
    """Return the time of the running event loop's clock in milliseconds."""
    return asyncio.get_running_loop().time() * 1000
