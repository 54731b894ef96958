"""Expired delegation tokens are deleted. Source: DelegationTokenManager.expireTokens (3.9)."""

from klamm.controller.events import DelegationTokenExpiry
from klamm.controller.term_context import TermContext

TIMER = "delegation token expiry"


def begin_expiring_tokens(term: TermContext) -> None:
    """At once, then on the interval; only where tokens are enabled, by their secret key."""
    if term.settings.token_check_interval_ms is not None:
        term.timers.after(TIMER, 0, DelegationTokenExpiry())


async def on_token_expiry(term: TermContext, event: DelegationTokenExpiry) -> None:
    """Delete what is expired. A token that cannot be decoded stays, and is journalled: nobody can use it either."""
    interval_ms = term.settings.token_check_interval_ms
    assert interval_ms is not None, "the event is put where tokens are enabled"
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
