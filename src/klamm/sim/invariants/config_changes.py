"""Config changes: they are announced to brokers, the announcements stay long enough, and brokers apply them.

Source: ZkConfigManager, ZkNodeChangeNotificationListener (3.9).
"""

from typing import Final

from klamm.sim.history.history import History
from klamm.sim.history.trace import ConfigChangeEnded, ConfigsApplied, TransactionCommitted
from klamm.sim.invariants.views import Cluster
from klamm.sim.zookeeper.tree import DeleteChange

_KEPT_MS: Final = 15 * 60_000
"""How long a notification stays: Kafka's change.expiration.ms, written down a second time."""


def config_changes_are_announced(history: History, event: ConfigChangeEnded) -> str | None:
    """When a command has changed a config without an error, a notification names the entity."""
    announced_at = history.configs.newest_notification.get(event.entity, 0)
    versions = history.configs.versions.get(event.entity, ())
    written_at = next((zxid for zxid, _ in versions if zxid > event.began_at), None)
    if written_at is not None and written_at < announced_at:
        return None
    return f"{event.entity} was changed at zxid {written_at}, its newest notification is of zxid {announced_at}"


def notifications_stay_for_15_minutes(history: History, event: TransactionCommitted) -> str | None:
    """A notification of a config change is deleted after 15 minutes by some node's clock, and not before."""
    for change in event.changes:
        found = history.configs.notifications.get(change.path) if isinstance(change, DeleteChange) else None
        if found is None:
            continue
        age_ms = (history.at.now_s - found.created_s) * 1000 + history.at.most_ahead_ms()
        if age_ms < _KEPT_MS:
            return f"{change.path}, of {found.entity}, is deleted {age_ms:.0f} ms after it was created"
    return None


def applied_configs_were_stored(history: History, event: ConfigsApplied) -> str | None:
    """What a broker applies as the config of an entity was the content of its znode at some time."""
    for entity, config in event.configs.items():
        versions = [content or {} for _, content in history.configs.versions.get(entity, ())]
        if config and config not in versions:
            return f"broker {event.broker} applies {dict(config)} to {entity}, whose config was never that: {versions}"
    return None


def config_changes_are_applied(cluster: Cluster) -> str | None:
    """Every running broker has applied the newest announced config of each topic, of all brokers, and of itself."""
    configs = cluster.history.configs
    for entity, announced_at in configs.newest_notification.items():
        written_at, content = configs.newest(entity)
        if content is None or announced_at < written_at or entity in configs.deleted_entities:
            continue
        for broker in cluster.running:
            if entity.startswith("brokers/") and entity not in (f"brokers/{broker.number}", "brokers/<default>"):
                continue
            applied = configs.applied.get((broker.number, broker.incarnation), {}).get(entity)
            if applied != content:
                return f"broker {broker.number} applied {applied} to {entity}, whose config is {content}"
    return None


def config_followers_are_up_to_date(cluster: Cluster) -> str | None:
    """No broker has a config change left to read."""
    for broker in cluster.running:
        if not broker.config_changes.is_up_to_date:
            return f"broker {broker.number} has not read the newest config changes"
    return None
