"""Request bodies in encoded form, shared by brokers.

This needs the position of a field in the encoding (UpdateMetadataRequest.json of Kafka 3.9); tests compare it with
whole encodings in every version.
"""

from collections.abc import Sequence
from typing import Any, Final

from klamm.controller.steps import REQUEST_PARTITIONS
from klamm.wire.messages import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataRequest,
)
from klamm.wire.source import ENCODED

_BROKER_EPOCH_AT: Final = {5: 8, 6: 8, 7: 8, 8: 9}
"""By version, the offset of the broker epoch in UpdateMetadata: after controller id, a flag (8+) and controller
epoch."""


class SharedState(LeaderAndIsrPartitionState, gc=False):
    """A partition's state in LeaderAndIsr requests, with its encoding, which the requests to all replicas share."""

    encoded: bytes = b""
    """Empty until a large request is encoded."""


def encoded_states(states: Sequence[SharedState], version: int) -> list[bytes]:
    """The encodings of these states; those without one are encoded first."""
    unencoded = [state for state in states if not state.encoded]
    made = LeaderAndIsrRequest.encode_elements(LeaderAndIsrPartitionState, unencoded, version)
    for state, its in zip(unencoded, made, strict=True):
        state.encoded = its
    return [state.encoded for state in states]


class MetadataBody:
    """An UpdateMetadata body encoded once; only the 8 bytes of the broker epoch differ from broker to broker."""

    __slots__ = ("_after", "_before", "_request", "_version", "broker_list_version")

    def __init__(self, request: UpdateMetadataRequest, version: int, broker_list_version: int) -> None:
        has_encoded = any(topic.partition_states.__class__ in ENCODED for topic in request.topic_states)
        self._request = None if has_encoded else request
        self._version = version
        self.broker_list_version = broker_list_version
        encoded = request.encode(version)
        at = _BROKER_EPOCH_AT.get(version)
        self._before = encoded if at is None else encoded[:at]
        self._after = b"" if at is None else encoded[at + 8 :]

    @property
    def request(self) -> UpdateMetadataRequest:
        """The decoded UpdateMetadata request; its broker epoch is not set."""
        if self._request is None:
            without_epoch = UpdateMetadataRequest().broker_epoch
            self._request = UpdateMetadataRequest.decode(b"".join(self.pieces(without_epoch)), self._version)
        return self._request

    def pieces(self, broker_epoch: int) -> list[Any]:
        """The encoded UpdateMetadata request with this broker epoch, as a list of buffers."""
        if not self._after:
            return [self._before]
        return [self._before, broker_epoch.to_bytes(8, "big", signed=True), self._after]


class BodyForBroker:
    """Takes the place of an UpdateMetadata message: the shared body with one broker's epoch."""

    API_KEY = UpdateMetadataRequest.API_KEY

    __slots__ = ("_body", "broker_epoch")

    def __init__(self, body: MetadataBody, broker_epoch: int) -> None:
        self._body = body
        self.broker_epoch = broker_epoch

    @property
    def request(self) -> UpdateMetadataRequest:
        """The decoded UpdateMetadata request; its broker epoch is not set."""
        return self._body.request

    def encode_pieces(self, version: int) -> list[Any]:
        """Return the encoded UpdateMetadata request with this broker's epoch, as a list of buffers."""
        return self._body.pieces(self.broker_epoch)

    def encode(self, version: int) -> bytes:
        """Return the encoded UpdateMetadata request with this broker's epoch, as one byte string."""
        return b"".join(self.encode_pieces(version))


def groups_of_partitions(topics: list[LeaderAndIsrTopicState]) -> list[list[LeaderAndIsrTopicState]]:
    """Split topics into groups of about REQUEST_PARTITIONS partitions."""
    groups: list[list[LeaderAndIsrTopicState]] = [[]]
    partitions = 0
    for topic in topics:
        if partitions >= REQUEST_PARTITIONS:
            groups.append([])
            partitions = 0
        groups[-1].append(topic)
        partitions += len(topic.partition_states)
    return groups
