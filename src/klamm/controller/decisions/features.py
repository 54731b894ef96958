"""Which feature levels may be finalized. Source: KafkaController.processFeatureUpdates, FeatureZNode (3.9)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from klamm.model.errors import ErrorCode
from klamm.model.ids import BrokerId
from klamm.zk.registrations import FeatureRange


class UpgradeType(IntEnum):
    """The kinds of update in an UpdateFeatures request."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


_UPGRADE_TYPES: Final = frozenset(UpgradeType)


class FeatureUpdate(NamedTuple):
    """A requested change of one feature's level; `upgrade_type` is as sent, perhaps an unknown number."""

    feature: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE

    @property
    def deletes(self) -> bool:
        """Whether the update deletes the finalized feature."""
        return self.level < 1 and self.upgrade_type == UpgradeType.SAFE_DOWNGRADE


@dataclass(slots=True)
class FeaturePlan:
    """The levels to finalize, and which updates were accepted or refused."""

    levels: dict[str, int]
    """All finalized levels after the accepted updates."""
    refused: dict[str, str] = field(default_factory=dict)
    accepted: list[str] = field(default_factory=list)


def plan_feature_updates(
    levels: Mapping[str, int],
    updates: Iterable[FeatureUpdate],
    supported: Mapping[str, FeatureRange],
    brokers: Mapping[BrokerId, Mapping[str, FeatureRange]],
    plan: FeaturePlan | None = None,
) -> FeaturePlan:
    """Check each update against the `levels` finalized now and the ranges that this node and the brokers support.

    With `plan`, which has what was decided of other updates, these are added to it.
    """
    plan = plan or FeaturePlan(dict(levels))
    for update in updates:
        why_not = _refusal(update, levels.get(update.feature), supported, brokers)
        if why_not is not None:
            plan.refused[update.feature] = why_not
            continue
        plan.accepted.append(update.feature)
        if update.deletes:
            plan.levels.pop(update.feature, None)
        else:
            plan.levels[update.feature] = update.level
    return plan


def _refusal(
    update: FeatureUpdate,
    existing: int | None,
    supported: Mapping[str, FeatureRange],
    brokers: Mapping[BrokerId, Mapping[str, FeatureRange]],
) -> str | None:
    """Kafka's message for an invalid update, checked in Kafka's order; None if it is valid."""
    if not update.feature:
        return "Feature name can not be empty."
    if update.upgrade_type not in _UPGRADE_TYPES:
        return "Received unknown upgrade type."
    if update.deletes:
        return "Can not delete non-existing finalized feature." if existing is None else None
    if update.level < 1:
        return f"Can not provide versionLevel: {update.level} less than 1 without setting the SAFE downgradeType."
    if existing is not None:
        if update.level == existing:
            return f"Can not change a finalized feature from existing versionLevel:{existing} to the same value."
        if update.level < existing and update.upgrade_type != UpgradeType.SAFE_DOWNGRADE:
            return f"Can not downgrade from existing versionLevel:{existing} without the downgradeType SAFE."
        if update.level > existing and update.upgrade_type != UpgradeType.UPGRADE:
            return f"With a downgradeType the versionLevel can not be greater than the existing {existing}."
    return _unsupported(update, supported, brokers)


def _unsupported(
    update: FeatureUpdate,
    supported: Mapping[str, FeatureRange],
    brokers: Mapping[BrokerId, Mapping[str, FeatureRange]],
) -> str | None:
    """The message for a level that this node or a broker does not support; None if all do."""
    own = supported.get(update.feature)
    if own is None:
        return "Could not apply finalized feature update because the provided feature is not supported."
    if update.level < own.min_version:
        return f"Could not apply finalized feature update: the supported minimum is {own.min_version}."
    behind = [b for b, features in brokers.items() if not supports(features, {update.feature: update.level})]
    if behind:
        return f"Could not apply finalized feature update because brokers {behind} were found to be incompatible."
    return None


def supports(features: Mapping[str, FeatureRange], levels: Mapping[str, int]) -> bool:
    """Whether these feature ranges include all finalized levels."""
    return all(
        (found := features.get(name)) is not None and found.min_version <= level <= found.max_version
        for name, level in levels.items()
    )


class FeatureAnswer(NamedTuple):
    """The answer to UpdateFeatures: an error for all, or a result for each feature."""

    error: ErrorCode
    message: str | None = None
    results: Mapping[str, tuple[ErrorCode, str | None]] = {}
    epoch: int | None = None
    """The version of `/feature` that holds what was accepted; None where nothing was written."""

    def with_timeout(self, why: str) -> "FeatureAnswer":
        """Return the same answer with an error in place of each success.

        The reason is that this node did not read the new levels in time.
        """
        failed = (ErrorCode.FEATURE_UPDATE_FAILED, why)
        results = {name: failed if was[0] is ErrorCode.NONE else was for name, was in self.results.items()}
        return self._replace(results=results)
