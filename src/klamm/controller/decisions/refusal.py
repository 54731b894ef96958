"""Why a request is refused, for one of the things it names."""

from typing import NamedTuple

from klamm.model.errors import ErrorCode


class Refusal(NamedTuple):
    error: ErrorCode
    why: str
