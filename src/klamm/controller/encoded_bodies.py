"""Request bodies in encoded form: shared by brokers, or encoded in pieces.

Both need the position of a few fields in the encoding (LeaderAndIsrRequest.json, UpdateMetadataRequest.json of Kafka
3.9); tests compare them with whole encodings in every version.
"""

from typing import Any, Final

from klamm.controller.batch_sizes import REQUEST_PARTITIONS
from klamm.runtime.time_slices import Slices
from klamm.wire.messages import LeaderAndIsrRequest, LeaderAndIsrTopicState, UpdateMetadataRequest

_BROKER_EPOCH_AT: Final = {5: 8, 6: 8, 7: 8, 8: 9}
"""By version, the offset of the broker epoch in UpdateMetadata: after controller id, a flag (8+) and controller
epoch."""

_TOPIC_STATES_AT: Final = {2: 16, 3: 16, 4: 16, 5: 17, 6: 17, 7: 18}
"""By version, the offset of the topic states in LeaderAndIsr: after controller id, a flag (7+), controller epoch,
broker epoch and type (5+)."""
_FIRST_FLEXIBLE: Final = 4
"""The first flexible version of LeaderAndIsr."""


class MetadataBody:
    """An UpdateMetadata body encoded once; only the 8 bytes of the broker epoch differ from broker to broker."""

    __slots__ = ("_after", "_before", "broker_list_version", "request")

    def __init__(self, request: UpdateMetadataRequest, version: int, broker_list_version: int) -> None:
        self.request = request
        self.broker_list_version = broker_list_version
        encoded = request.encode(version)
        at = _BROKER_EPOCH_AT.get(version)
        self._before = encoded if at is None else encoded[:at]
        self._after = b"" if at is None else encoded[at + 8 :]

    def pieces(self, broker_epoch: int) -> list[Any]:
        """The encoded body with this broker epoch, as a list of buffers."""
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
        """The decoded content; its broker epoch is not set."""
        return self._body.request

    def encode_pieces(self, version: int) -> list[Any]:
        return self._body.pieces(self.broker_epoch)

    def encode_parts(self, version: int) -> list[Any]:
        return self.encode_pieces(version)

    def encode(self, version: int) -> bytes:
        return b"".join(self.encode_pieces(version))


class EncodedBody:
    """Takes the place of a LeaderAndIsr message: its encoding as a list of buffers."""

    API_KEY = LeaderAndIsrRequest.API_KEY

    __slots__ = ("_pieces",)

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = pieces

    def encode_pieces(self, version: int) -> list[Any]:
        return list(self._pieces)


async def encode_in_pieces(request: LeaderAndIsrRequest, version: int, slices: Slices) -> EncodedBody:
    """Encode like `request.encode(version)`, but a few thousand partitions between two checkpoints of the loop."""
    topics, request.topic_states = request.topic_states, []
    empty = request.encode(version)
    at = _TOPIC_STATES_AT[version]
    pieces = [empty[:at], _array_length(len(topics), version)]
    for group in _groups(topics):
        await slices.checkpoint()
        piece = LeaderAndIsrRequest(topic_states=group).encode(version)
        pieces.append(piece[at + len(_array_length(len(group), version)) : -_tail(version)])
    pieces.append(empty[at + len(_array_length(0, version)) :])
    request.topic_states = topics
    return EncodedBody(pieces)


def _groups(topics: list[LeaderAndIsrTopicState]) -> list[list[LeaderAndIsrTopicState]]:
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


def _array_length(count: int, version: int) -> bytes:
    """The encoded length of an array: four bytes, or a varint in flexible versions."""
    if version < _FIRST_FLEXIBLE:
        return count.to_bytes(4, "big")
    encoded = bytearray()
    rest = count + 1
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def _tail(version: int) -> int:
    """The number of bytes after the topics if there are no live leaders: an empty array, and (4+) no tagged fields."""
    return 4 if version < _FIRST_FLEXIBLE else 2
