"""Delegation tokens whose time is over are taken away. Source: DelegationTokenManager.expireTokens (3.9)."""

from klamm.controller.events import DelegationTokenExpiry
from klamm.controller.term_context import TermContext
from klamm.zk.delegation_tokens import TOKEN_CHANGES, TOKENS, decode_token
from klamm.zk.errors import NoNode, ZkCode
from klamm.zk.operations import Create, Delete
from klamm.zk.znodes import MalformedZnode

TIMER = "delegation token expiry"


def begin_expiring_tokens(term: TermContext) -> None:
    """At once, then on the interval; only where tokens are enabled, by their secret key."""
    if term.settings.token_check_interval_ms is not None:
        term.timers.after(TIMER, 0, DelegationTokenExpiry())


async def on_token_expiry(term: TermContext, event: DelegationTokenExpiry) -> None:
    interval_ms = term.settings.token_check_interval_ms
    assert interval_ms is not None, "the event is put where tokens are enabled"
    term.timers.after(TIMER, interval_ms / 1000, DelegationTokenExpiry())
    try:
        ids = sorted((await term.store.client.children(TOKENS))[0])
    except NoNode:
        return
    over = await _expired(term, ids)
    deleted = await term.store.write([Delete(f"{TOKENS}/{token}") for token in over])
    gone = [t for t, r in zip(over, deleted, strict=True) if r.code in (ZkCode.OK, ZkCode.NO_NODE)]
    if not gone:
        return
    await term.store.client.ensure_path(TOKEN_CHANGES)
    await term.store.write([Create(f"{TOKEN_CHANGES}/token_change_", t.encode(), sequential=True) for t in gone])
    term.journal.write(term.cause, "expired delegation tokens", tokens=gone)


async def _expired(term: TermContext, ids: list[str]) -> list[str]:
    """One that cannot be read stays, aloud: nobody can use it either."""
    now_ms = term.now_ms()
    over = []
    for token_id, result in zip(ids, await term.store.client.get_many([f"{TOKENS}/{t}" for t in ids]), strict=True):
        if result.code is not ZkCode.OK:
            continue
        try:
            token = decode_token(token_id, result.data)
        except MalformedZnode as error:
            term.journal.refused(term.cause, "delegation token", str(error))
            continue
        if token.ends_ms < now_ms:
            over.append(token_id)
    return over
