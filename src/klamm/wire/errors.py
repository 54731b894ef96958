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
        place = f"field {field} at byte {offset}" if field else f"byte {offset}"
        super().__init__(f"{message} v{version}, {place}: {reason}")
        self.message = message
        self.version = version
        self.field = field
        self.offset = offset
        self.reason = reason


class OversizedMessage(WireError):
    """The arrays of `message` have more than `max_elements` elements together."""

    def __init__(self, message: str, version: int, max_elements: int) -> None:
        super().__init__(f"{message} v{version}: its arrays have more than {max_elements} elements together")
        self.message = message
        self.version = version
        self.max_elements = max_elements


class UnsupportedVersion(WireError):
    """`message` has no such version in Kafka 3.9."""

    def __init__(self, message: str, version: int, known: str) -> None:
        super().__init__(f"{message} has no version {version} in Kafka 3.9; use one of {known}")
        self.message = message
        self.version = version


class UnknownApi(WireError):
    """A request names an API key that no 3.9 broker in ZooKeeper mode serves."""

    def __init__(self, api_key: int) -> None:
        super().__init__(
            f"API key {api_key} is not served by brokers in ZooKeeper mode; use one that ApiVersions lists"
        )
        self.api_key = api_key


class UnsupportedField(WireError):
    """A field was given a value, but `version` has no place for it and it must not be dropped."""

    def __init__(self, message: str, version: int, field: str, value: object) -> None:
        super().__init__(
            f"cannot encode {message} v{version}: this version has no field {field}, which is set to {value!r}; "
            "use a version that has it, or leave it at its default"
        )
        self.message = message
        self.version = version
        self.field = field


class UnencodableField(WireError):
    """A value does not fit its field: None where null is not allowed, a number out of range, a wrong type."""

    def __init__(self, message: str, version: int, field: str, reason: str) -> None:
        place = f", field {field}" if field else ""
        super().__init__(f"cannot encode {message} v{version}{place}: {reason}")
        self.message = message
        self.version = version
        self.field = field
        self.reason = reason


class MalformedHeader(WireError):
    """A frame too short for its header."""
