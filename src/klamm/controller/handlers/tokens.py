"""Deletion of expired delegation tokens. Source: DelegationTokenManager.expireTokens (3.9)."""

from klamm.controller.events import DelegationTokenExpiry
from klamm.controller.term_context import TermContext

TIMER = "delegation token expiry"


def begin_expiring_tokens(term: TermContext) -> None:
    """Start the periodic deletion of expired delegation tokens, if a secret key is configured."""
    if term.settings.token_check_interval_ms is not None:
        term.timers.after(TIMER, 0, DelegationTokenExpiry())


async def on_token_expiry(term: TermContext, event: DelegationTokenExpiry) -> None:
    """Delete expired tokens. A token that cannot be decoded, which nobody can use, stays and is journalled."""
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
