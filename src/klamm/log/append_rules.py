"""A topic's configuration as far as an append by a leader needs it."""

from dataclasses import dataclass
from typing import Final

from klamm.config.config_types import MAX_LONG
from klamm.config.topic_config import TopicConfig
from klamm.log.errors import AppendRefused
from klamm.model.errors import ErrorCode
from klamm.wire.compression import Codec

_CODECS: Final = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}
WRONG_CLIENT: Final = "The producer's client encodes batches wrongly: update or replace it."
_LZ4_DEFAULT_LEVEL: Final = 9  # Kafka's number for the fast compressor


@dataclass(frozen=True, slots=True)
class AppendRules:
    """A topic's config as far as an append by a leader needs it, computed once."""

    max_message_bytes: int
    segment_bytes: int
    codec: Codec | None  # None: as the producer chose
    level: int | None
    log_append_time: bool
    needs_keys: bool
    before_max_ms: int
    after_max_ms: int

    @classmethod
    def of(cls, config: TopicConfig) -> "AppendRules":
        """Return the rules for batches that follow from a topic config."""
        codec = _CODECS.get(config.compression_type)
        return cls(
            config.max_message_bytes,
            config.segment_bytes,
            codec,
            _level(config, codec),
            config.uses_log_append_time,
            config.is_compacted,
            config.message_timestamp_before_max_ms,
            config.message_timestamp_after_max_ms,
        )

    @property
    def may_need_records(self) -> bool:
        """Whether some batches of the topic need a check of every record, not only of their header."""
        return self.needs_keys or self.codec is not None or self.bounds_timestamps

    def needs_records(self, codec: Codec) -> bool:
        """Whether batches in this codec need a check of every record."""
        return self.needs_keys or self.needs_recompression(codec) or self.bounds_timestamps

    def needs_recompression(self, codec: Codec) -> bool:
        """Whether batches in this codec are recompressed with another one before they are written."""
        return self.codec not in (None, codec)

    @property
    def bounds_timestamps(self) -> bool:
        """Whether the topic bounds the timestamps of records."""
        return not self.log_append_time and not self.before_max_ms == self.after_max_ms == MAX_LONG


def _level(config: TopicConfig, codec: Codec | None) -> int | None:
    """The configured compression level of the codec; None for its default."""
    if codec is Codec.GZIP:
        return config.compression_gzip_level
    if codec is Codec.ZSTD:
        return config.compression_zstd_level
    if codec is Codec.LZ4 and config.compression_lz4_level != _LZ4_DEFAULT_LEVEL:
        return config.compression_lz4_level
    return None


def check_size(size: int, rules: AppendRules) -> None:
    """Raise AppendRefused where a batch exceeds `max.message.bytes`."""
    if size > rules.max_message_bytes:
        raise AppendRefused(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the batch has {size} bytes, but max.message.bytes of the topic is {rules.max_message_bytes}. Lower "
            "batch.size or max.request.size in the producer, or raise max.message.bytes.",
        )
