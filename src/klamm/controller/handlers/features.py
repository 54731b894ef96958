"""Finalized features: written when a term begins, changed on request. Source: KafkaController (3.9).

In ZooKeeper mode no node supports a feature unless its settings say so; features that other software finalized may be
deleted.
"""

from klamm.controller.decisions.features import FeatureAnswer, plan_feature_updates
from klamm.controller.events import UpdateFeatures
from klamm.controller.term_context import TermContext
from klamm.model.errors import ErrorCode, KlammError
from klamm.zk.admin_znodes import FinalizedFeatures
from klamm.zk.fenced import ControllerMoved
from klamm.zk.znodes import FEATURE, MalformedZnode


async def set_up_features(term: TermContext) -> None:
    """Write `/feature` as inter.broker.protocol.version requires, and wait until this node has read it."""
    settings = term.settings
    try:
        levels, epoch = await term.store.set_up_features(settings.features_payload_version, settings.versions_features)
    except MalformedZnode as error:
        term.journal.refused(
            term.cause, FEATURE, f"{error}; the znode is not changed, and no feature counts as finalized"
        )
        return
    term.context.finalized = levels
    if settings.versions_features and not await term.wait_for_features(epoch, settings.feature_timeout_s):
        raise KlammError(
            f"the features were written, but this node did not read version {epoch} of {FEATURE} before the timeout. "
            "Try again."
        )


async def on_update_features(term: TermContext, event: UpdateFeatures) -> None:
    """Check each update separately, write the valid ones together, and answer."""
    if not term.settings.versions_features:
        text = "Feature versioning is not supported by the inter.broker.protocol.version"
        event.answer(FeatureAnswer(ErrorCode.INVALID_REQUEST, text))
        return
    stored, version = await term.store.read_features()
    brokers = {b: r.features for b, r in (await term.store.read_brokers()).brokers.items()}
    plan = plan_feature_updates(stored.levels, event.updates, term.settings.supported_features, brokers)
    for feature, why in plan.refused.items():
        term.journal.refused(term.cause, "feature update", why, feature=feature)
    outcome: tuple[ErrorCode, str | None] = (ErrorCode.NONE, None)
    epoch = None
    if plan.levels != stored.levels and not event.validate_only:
        try:
            epoch = await _write(term, FinalizedFeatures(stored.version, True, plan.levels), version)
        except ControllerMoved:
            raise
        except KlammError as error:
            outcome = (ErrorCode.FEATURE_UPDATE_FAILED, str(error))
    refused = {feature: (ErrorCode.INVALID_REQUEST, why) for feature, why in plan.refused.items()}
    event.answer(FeatureAnswer(ErrorCode.NONE, None, {**dict.fromkeys(plan.accepted, outcome), **refused}, epoch))


async def _write(term: TermContext, features: FinalizedFeatures, version: int) -> int:
    """Write the finalized features to ZooKeeper and memory; returns the znode's version."""
    epoch = await term.store.write_features(features, version)
    term.context.finalized = features.levels
    term.journal.write(term.cause, "features", levels=features.levels, epoch=epoch)
    return epoch
