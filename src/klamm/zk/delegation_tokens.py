"""Delegation tokens in ZooKeeper, as far as their expiry needs. Source: DelegationTokenInfoZNode (ZkData.scala)."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from klamm.zk.errors import NoNode, ZkCode
from klamm.zk.fenced import FencedWriter
from klamm.zk.operations import Create, Delete
from klamm.zk.port import ZooKeeperClient
from klamm.zk.znodes import MalformedZnode, decode_json

TOKENS: Final = "/delegation_token/tokens"
TOKEN_CHANGES: Final = "/delegation_token/token_changes"


class Token(NamedTuple):
    """The end times of a delegation token."""

    max_ms: int
    """The latest time to which the token can be renewed."""
    expiry_ms: int

    @property
    def ends_ms(self) -> int:
        """The time at which the delegation token expires, in ms."""
        return min(self.max_ms, self.expiry_ms)


class _Token(msgspec.Struct):
    maxTimestamp: int  # noqa: N815 - Kafka's key
    expiryTimestamp: int  # noqa: N815


def decode_token(token_id: str, payload: bytes | None) -> Token:
    """The expiry times in a delegation token's znode. Raises MalformedZnode."""
    read = decode_json(f"{TOKENS}/{token_id}", payload, _Token)
    return Token(read.maxTimestamp, read.expiryTimestamp)


class TokenStore:
    """Reads and fenced deletions of tokens, with the notifications to brokers."""

    def __init__(self, client: ZooKeeperClient, writer: FencedWriter) -> None:
        self._client = client
        self._writer = writer

    async def read(self) -> tuple[dict[str, Token], list[MalformedZnode]]:
        """The delegation tokens by id, in order of ids, and the errors of those that cannot be decoded.

        Tokens that an ACL hides are in neither.
        """
        try:
            ids = sorted((await self._client.children(TOKENS))[0])
        except NoNode:
            return {}, []
        tokens: dict[str, Token] = {}
        malformed: list[MalformedZnode] = []
        for token_id, result in zip(ids, await self._client.get_many([f"{TOKENS}/{t}" for t in ids]), strict=True):
            if result.code is not ZkCode.OK:
                continue
            try:
                tokens[token_id] = decode_token(token_id, result.data)
            except MalformedZnode as error:
                malformed.append(error)
        return tokens, malformed

    async def delete(self, ids: Sequence[str]) -> list[str]:
        """Delete delegation tokens and notify the brokers; returns the ids whose znodes are gone afterwards."""
        deleted = await self._writer.write([Delete(f"{TOKENS}/{token}") for token in ids])
        gone = [t for t, r in zip(ids, deleted, strict=True) if r.code in (ZkCode.OK, ZkCode.NO_NODE)]
        if gone:
            await self._client.ensure_path(TOKEN_CHANGES)
            prefix = f"{TOKEN_CHANGES}/token_change_"
            await self._writer.write([Create(prefix, t.encode(), sequential=True) for t in gone])
        return gone
