"""What the controller administers besides partitions: finalized features, producer ids, expiry of delegation tokens.

In ZooKeeper mode no node supports a feature unless its settings say so; features that other software finalized may be
deleted. Source: KafkaController, processAllocateProducerIds, DelegationTokenManager.expireTokens (3.9).
"""

from klamm.controller.decisions.features import FeatureAnswer, FeaturePlan, plan_feature_updates
from klamm.controller.events import AllocateProducerIds, DelegationTokenExpiry, ProducerIds, UpdateFeatures
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
    plan = FeaturePlan(dict(stored.levels))
    async for piece in term.slices.over(event.updates):
        plan_feature_updates(stored.levels, piece, term.settings.supported_features, brokers, plan)
    async for feature, why in term.slices.each(plan.refused.items()):
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
    refused = await term.slices.dict_of((f, (ErrorCode.INVALID_REQUEST, why)) for f, why in plan.refused.items())
    event.answer(FeatureAnswer(ErrorCode.NONE, None, {**dict.fromkeys(plan.accepted, outcome), **refused}, epoch))


async def _write(term: TermContext, features: FinalizedFeatures, version: int) -> int:
    """Write the finalized features to ZooKeeper and memory; returns the znode's version."""
    epoch = await term.store.write_features(features, version)
    term.context.finalized = features.levels
    term.journal.write(term.cause, "features", levels=features.levels, epoch=epoch)
    return epoch


async def on_allocate_producer_ids(term: TermContext, event: AllocateProducerIds) -> None:
    """Allocate a block of producer ids for a registered broker, and answer."""
    known = term.context.registered.get(event.broker)
    if known is None:
        event.refuse(ErrorCode.BROKER_ID_NOT_REGISTERED)
    elif known.epoch != event.broker_epoch:
        event.refuse(ErrorCode.STALE_BROKER_EPOCH)
    else:
        block = await term.store.allocate_producer_ids(event.broker)
        term.journal.write(term.cause, "producer ids", broker=event.broker, first=block.first, last=block.last)
        event.answer(ProducerIds(ErrorCode.NONE, block.first, block.last - block.first + 1))


TIMER = "delegation token expiry"


def begin_expiring_tokens(term: TermContext) -> None:
    """Start the periodic deletion of expired delegation tokens, if a secret key is configured."""
    if term.settings.token_check_interval_ms is not None:
        term.timers.after(TIMER, 0, DelegationTokenExpiry())


async def on_token_expiry(term: TermContext, event: DelegationTokenExpiry) -> None:
    """Delete expired tokens. A token that cannot be decoded is useless; it is kept and journalled."""
    interval_ms = term.settings.token_check_interval_ms
    assert interval_ms is not None, "this event is queued only where delegation tokens are enabled"
    term.timers.after(TIMER, interval_ms / 1000, DelegationTokenExpiry())
    tokens, malformed = await term.store.tokens.read()
    for error in malformed:
        term.journal.refused(term.cause, "delegation token", str(error))
    if not tokens:
        return
    now_ms = term.now_ms()
    gone = await term.store.tokens.delete([t for t, token in tokens.items() if token.ends_ms < now_ms])
    if gone:
        term.journal.write(term.cause, "expired delegation tokens", tokens=gone)
