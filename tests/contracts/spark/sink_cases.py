"""Writes that Spark's own connector and klamm must do alike, and where they differ with reason."""

from collections.abc import Mapping
from typing import NamedTuple

from tests.contracts.spark.cases import Difference

TOPIC = "{topic}"
"""Stands for the topic of the case, in options and in columns."""
OPTION = {"topic": TOPIC}
PARTITIONS = 3


class SinkCase(NamedTuple):
    name: str
    query: str
    """What is written, as SQL."""
    options: Mapping[str, str] = OPTION
    stream: bool = False
    mode: str | None = "append"


ROWS = "SELECT STRING(id) AS key, CONCAT('v', id) AS value FROM RANGE(6)"
QUERIES: Mapping[str, str] = {
    "key and value": ROWS,
    "binary key and value": "SELECT BINARY(STRING(id)) AS key, BINARY('v') AS value FROM RANGE(6)",
    "value alone": "SELECT STRING(id) AS value FROM RANGE(6)",
    "null values": "SELECT STRING(id) AS key, IF(id % 2 = 0, NULL, 'v') AS value FROM RANGE(6)",
    "null keys": "SELECT IF(id % 2 = 0, NULL, STRING(id)) AS key, STRING(id) AS value FROM RANGE(6)",
    "empty keys and values": "SELECT '' AS key, '' AS value FROM RANGE(2)",
    "long keys": "SELECT REPEAT(STRING(id), 37) AS key, 'v' AS value FROM RANGE(20)",
    "keys outside ASCII": "SELECT CONCAT('schlüssel-', id) AS key, 'größe' AS value FROM RANGE(9)",
    "a partition": "SELECT STRING(id) AS key, 'v' AS value, INT(id % 3) AS partition FROM RANGE(9)",
    "a null partition": "SELECT STRING(id) AS key, 'v' AS value, INT(NULL) AS partition FROM RANGE(6)",
    "a partition too high": "SELECT 'v' AS value, 3 AS partition",
    "a negative partition": "SELECT 'v' AS value, -1 AS partition",
    "a partition of BIGINT": "SELECT 'v' AS value, BIGINT(1) AS partition",
    "headers": "SELECT 'v' AS value, ARRAY(NAMED_STRUCT('key', 'h', 'value', BINARY('1')), "
    "NAMED_STRUCT('key', 'h', 'value', BINARY(NULL))) AS headers",
    "null headers": "SELECT 'v' AS value, CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    "no headers in the list": "SELECT 'v' AS value, "
    "CAST(ARRAY() AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
    "a header without a key": "SELECT 'v' AS value, "
    "ARRAY(NAMED_STRUCT('key', STRING(NULL), 'value', BINARY('1'))) AS headers",
    "headers of strings": "SELECT 'v' AS value, ARRAY('h') AS headers",
    "headers that are a map": "SELECT 'v' AS value, MAP('h', BINARY('1')) AS headers",
    "other columns": "SELECT 'v' AS value, 1 AS offset, 'x' AS anything",
    "no value": "SELECT 'k' AS key",
    "a value of INT": "SELECT 1 AS value",
    "a key of INT": "SELECT 1 AS key, 'v' AS value",
    "a value in capitals": "SELECT 'v' AS VALUE",
    "no rows": "SELECT STRING(id) AS value FROM RANGE(0)",
    "a large value": "SELECT REPEAT('x', 900000) AS value",
    "a value too large": "SELECT REPEAT('x', 1100000) AS value",
}  # fmt: skip
OPTIONS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "a column topic": ("SELECT '{topic}' AS topic, 'v' AS value", {}),
    "a column topic and an option": ("SELECT 'no-such-topic' AS topic, 'v' AS value", OPTION),
    "a column topic of INT": ("SELECT 1 AS topic, 'v' AS value", {}),
    "a null topic": ("SELECT STRING(NULL) AS topic, 'v' AS value", {}),
    "a null topic and an option": ("SELECT STRING(NULL) AS topic, 'v' AS value", OPTION),
    "no topic": (ROWS, {}),
    "a topic in capitals": (ROWS, {"TOPIC": TOPIC}),
    "a missing topic": (ROWS, {"topic": "no-such-topic", "kafka.max.block.ms": "2000"}),
    "headers by option": (ROWS, OPTION | {"includeHeaders": "true"}),
    "headers though the option says no": (QUERIES["headers"], OPTION | {"includeHeaders": "false"}),
    **{f"codec {c}": (ROWS, OPTION | {"kafka.compression.type": c}) for c in ("none", "gzip", "snappy", "lz4", "zstd")},
    "a codec that is none": (ROWS, OPTION | {"kafka.compression.type": "brotli"}),
    "a level of gzip": (ROWS, OPTION | {"kafka.compression.type": "gzip", "kafka.compression.gzip.level": "9"}),
    "a level that is none": (ROWS, OPTION | {"kafka.compression.type": "zstd", "kafka.compression.zstd.level": "99"}),
    **{f"acks {acks}": (ROWS, OPTION | {"kafka.acks": acks}) for acks in ("all", "-1", "0", "1", "2")},
    "idempotence without all acks": (ROWS, OPTION | {"kafka.acks": "1", "kafka.enable.idempotence": "true"}),
    "no idempotence": (ROWS, OPTION | {"kafka.enable.idempotence": "false"}),
    "small batches": (ROWS, OPTION | {"kafka.batch.size": "10"}),
    "a small request": (ROWS, OPTION | {"kafka.max.request.size": "10"}),
    "a large request": (QUERIES["a value too large"], OPTION | {"kafka.max.request.size": "2000000"}),
    "keys ignored": (QUERIES["null keys"], OPTION | {"kafka.partitioner.ignore.keys": "false"}),
    "lingering": (ROWS, OPTION | {"kafka.linger.ms": "5", "kafka.retries": "3"}),
    "a client id": (ROWS, OPTION | {"kafka.client.id": "somebody"}),
    "options for reading": (ROWS, OPTION | {"startingOffsets": "earliest", "failOnDataLoss": "false"}),
    "a serializer of keys": (ROWS, OPTION | {"kafka.key.serializer": "x"}),
    "a serializer of values": (ROWS, OPTION | {"kafka.value.serializer": "x"}),
    "interceptors": (ROWS, OPTION | {"kafka.interceptor.classes": "x"}),
    "a partitioner of nobody": (ROWS, OPTION | {"kafka.partitioner.class": "x"}),
    "a time that is none": (ROWS, OPTION | {"kafka.delivery.timeout.ms": "soon"}),
    "an option that nobody knows": (ROWS, OPTION | {"tpic": "x"}),
    "an option of Kafka that nobody knows": (ROWS, OPTION | {"kafka.no.such.option": "1"}),
}  # fmt: skip
STREAMED = (
    "key and value", "null values", "null keys", "a partition", "a partition too high", "headers", "no value",
    "a value of INT",
)  # fmt: skip
STREAMED_OPTIONS = (
    "a column topic", "a column topic and an option", "a null topic", "no topic", "codec zstd", "a codec that is none",
    "a serializer of keys", "an option that nobody knows",
)  # fmt: skip
MODES = ("append", "overwrite", "ignore", "error")


def sink_cases() -> list[SinkCase]:
    """Every case, each name once."""
    cases = [SinkCase(f"write {name}", query) for name, query in QUERIES.items()]
    cases += [SinkCase(f"write with {name}", query, options) for name, (query, options) in OPTIONS.items()]
    cases += [SinkCase(f"write in mode {mode}", ROWS, mode=mode) for mode in MODES]
    cases += [SinkCase(f"stream {name}", QUERIES[name], stream=True) for name in STREAMED]
    cases += [SinkCase(f"stream with {name}", *OPTIONS[name], stream=True) for name in STREAMED_OPTIONS]
    return cases


_TYPO = "a misspelt option would be ignored in silence; klamm names the most similar one"
SINK_DIFFERENCES: Mapping[str, Difference] = {
    "write with an option that nobody knows": Difference("error", _TYPO),
    "write with an option of Kafka that nobody knows": Difference("error", _TYPO),
    "stream with an option that nobody knows": Difference("error", _TYPO),
    "write a value in capitals": Difference("rows", "names of columns may be in any case, as everywhere in Spark"),
    "write in mode error": Difference("error", "Spark offers the mode only to formats of its own, not to Python's"),
}
