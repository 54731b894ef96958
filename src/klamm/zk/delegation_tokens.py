"""Delegation tokens in ZooKeeper, as far as their end concerns. Source: DelegationTokenInfoZNode (ZkData.scala)."""

from typing import Final, NamedTuple

import msgspec

from klamm.zk.znodes import decode_json

TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"


class Token(NamedTuple):
    max_ms: int
    """When it ends at the latest, however often it is renewed."""
    expiry_ms: int

    @property
    def ends_ms(self) -> int:
        return min(self.max_ms, self.expiry_ms)


class _Token(msgspec.Struct):
    maxTimestamp: int  # noqa: N815 - Kafka's key
    expiryTimestamp: int  # noqa: N815


def decode_token(token_id: str, payload: bytes | None) -> Token:
    """Raises MalformedZnode."""
    read = decode_json(f"{TOKENS}/{token_id}", payload, _Token)
    return Token(read.maxTimestamp, read.expiryTimestamp)
