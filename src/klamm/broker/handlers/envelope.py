"""Envelope: a request that one broker forwards for a client. Source: KafkaApis.handleEnvelope (3.9).

A controller in ZooKeeper mode forwards nothing: as in Kafka, the connection is closed as after an unreadable request.
"""

from typing import Final

from klamm.broker.dispatch import Offered, Request
from klamm.net.server import CloseConnection
from klamm.wire.api import ApiKey
from klamm.wire.messages import EnvelopeRequest, EnvelopeResponse

ENVELOPE: Final = Offered(ApiKey.ENVELOPE, 0, 0)


class Envelope:
    """Serves Envelope."""

    def handle(self, request: Request, message: EnvelopeRequest) -> EnvelopeResponse:
        """Close the connection, because no broker in ZooKeeper mode forwards requests. Raises CloseConnection."""
        raise CloseConnection("an Envelope request, but no broker in ZooKeeper mode forwards any. Check the client.")
