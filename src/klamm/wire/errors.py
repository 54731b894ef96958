"""Errors of decoding and encoding."""

from klamm.model.errors import KlammError


class WireError(KlammError):
    """Bytes or messages that do not fit Kafka's protocol."""


class MalformedMessage(WireError):
    """Bytes that do not parse as `message` in `version`.

    `field` is the path of the malformed field, such as `topics[3].partitions[0].records`; `offset` counts
    from the start of the buffer.
    """

    def __init__(self, message: str, version: int, field: str, offset: int, reason: str) -> None:
        super().__init__(f"{message} v{version}: {field or 'body'} at byte {offset}: {reason}")
        self.message = message
        self.version = version
        self.field = field
        self.offset = offset
        self.reason = reason


class UnsupportedVersion(WireError):
    """`message` has no such version in Kafka 3.9."""

    def __init__(self, message: str, version: int, known: str) -> None:
        super().__init__(f"{message} has no version {version}; it has {known}")
        self.message = message
        self.version = version


class UnknownApi(WireError):
    """A request names an API key that no 3.9 broker in ZooKeeper mode serves."""

    def __init__(self, api_key: int) -> None:
        super().__init__(f"API key {api_key} is not served by brokers in ZooKeeper mode")
        self.api_key = api_key


class UnsupportedField(WireError):
    """A field was given a value, but `version` has no place for it and it must not be dropped."""

    def __init__(self, message: str, version: int, field: str, value: object) -> None:
        super().__init__(f"{message} v{version} cannot carry {field}={value!r}; leave it at its default")
        self.message = message
        self.version = version
        self.field = field


class UnencodableField(WireError):
    """A value does not fit its field: None where null is not allowed, a number out of range, a wrong type."""

    def __init__(self, message: str, version: int, field: str, reason: str) -> None:
        super().__init__(f"{message} v{version}: {field or 'body'}: {reason}")
        self.message = message
        self.version = version
        self.field = field
        self.reason = reason


class MalformedFrame(WireError):
    """A size prefix that is negative or over the limit; the connection must be closed.

    `frames` are those that were complete before it.
    """

    def __init__(self, size: int, max_bytes: int, frames: list[bytes]) -> None:
        super().__init__(f"a frame of {size} bytes: the size must be 0 to {max_bytes}")
        self.size = size
        self.frames = frames


class MalformedHeader(WireError):
    """A frame too short for its header."""
