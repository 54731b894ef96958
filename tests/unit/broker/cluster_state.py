"""Builders for what handlers are tested with: a metadata cache in some state, and requests."""

import uuid
from collections.abc import Mapping, Sequence

from klamm.broker.dispatch import Request
from klamm.broker.metadata_cache import MetadataCache
from klamm.net.client_connection import ClientConnection, Peer
from klamm.runtime.time_slices import CountedSlices
from klamm.wire.api import ApiKey
from klamm.wire.messages import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

ORDERS_ID = uuid.UUID(int=77)


def broker(number: int, *listeners: str, rack: str | None = None) -> UpdateMetadataBroker:
    """A live broker of an UpdateMetadata."""
    names = listeners or ("PLAINTEXT",)
    endpoints = [
        UpdateMetadataEndpoint(port=9092 + i, host=f"h{number}", listener=name) for i, name in enumerate(names)
    ]
    return UpdateMetadataBroker(id=number, endpoints=endpoints, rack=rack)


def partition(
    number: int, leader: int, replicas: Sequence[int] = (1, 2, 3), isr: Sequence[int] = (1, 2, 3), epoch: int = 4
) -> UpdateMetadataPartitionState:
    """A partition state of an UpdateMetadata."""
    return UpdateMetadataPartitionState(
        partition_index=number, leader=leader, leader_epoch=epoch, isr=tuple(isr), replicas=tuple(replicas)
    )


def update(
    topics: Mapping[str, Sequence[UpdateMetadataPartitionState]] | None = None,
    brokers: Sequence[UpdateMetadataBroker] | None = None,
    controller: int = 1,
    ids: Mapping[str, uuid.UUID] | None = None,
) -> UpdateMetadataRequest:
    """An UpdateMetadata with these topics and brokers."""
    return UpdateMetadataRequest(
        controller_id=controller,
        topic_states=[
            UpdateMetadataTopicState(name, (ids or {"orders": ORDERS_ID}).get(name, uuid.UUID(int=0)), list(states))
            for name, states in (topics or {}).items()
        ],
        live_brokers=list(brokers if brokers is not None else (broker(1), broker(2), broker(3))),
    )


def cache(request: UpdateMetadataRequest | None = None) -> MetadataCache:
    """A metadata cache after this UpdateMetadata."""
    made = MetadataCache("PLAINTEXT")
    made.update(request or update({"orders": [partition(0, 1), partition(1, 2)]}))
    return made


def request(key: ApiKey, version: int, client_id: str = "c", listener: str = "PLAINTEXT") -> Request:
    return Request(key, version, 1, client_id, ClientConnection(Peer(listener, "10.0.0.1", 5000)), CountedSlices())
