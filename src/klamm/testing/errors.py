"""What a test cluster raises when the cluster refuses a request."""

from collections.abc import Sequence

from klamm.cli.admin.refusals import Refusal
from klamm.model.errors import KlammError


class RequestFailed(KlammError):
    """The cluster refused a request; the text has Kafka's error codes."""


def raise_refusals(refusals: Sequence[Refusal]) -> None:
    """Raise RequestFailed where there is a refusal."""
    if refusals:
        raise RequestFailed("; ".join(map(str, refusals)))
