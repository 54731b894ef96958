"""Reads that Spark's own connector and klamm must answer alike, and where they differ with reason."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

FIRST_MS = 1_700_000_000_000
"""The timestamp of record 0 of each partition; record n is n seconds later."""


class Case(NamedTuple):
    name: str
    options: Mapping[str, str]
    stream: bool = False
    again: bool = False
    """Run the stream twice with one checkpoint."""


def offsets(**topics: Mapping[int, int]) -> str:
    return json.dumps({topic: {str(p): o for p, o in each.items()} for topic, each in topics.items()})


def times(*seconds: int) -> str:
    return offsets(orders={n: FIRST_MS + 1_000 * s for n, s in enumerate(seconds)})


ORDERS = {"subscribe": "orders"}
EARLIEST = {"startingOffsets": "earliest"}
P0 = {"assign": '{"orders": [0]}'}
ALL = {0: 2, 1: -2, 2: -1}

SUBSCRIPTIONS: Mapping[str, Mapping[str, str]] = {
    "one topic": ORDERS,
    "two topics": {"subscribe": "orders,payments"},
    "two topics with blanks": {"subscribe": " orders , payments "},
    "a topic named twice": {"subscribe": "orders,orders"},
    "an empty topic": {"subscribe": "empty"},
    "a compressed topic": {"subscribe": "compressed"},
    "timestamps of the broker": {"subscribe": "appended"},
    "a topic whose beginning was deleted": {"subscribe": "trimmed"},
    "one partition": P0,
    "some partitions": {"assign": '{"orders": [0, 2], "payments": [0]}'},
    "a pattern": {"subscribePattern": "^orders$"},
    "a pattern that is found inside": {"subscribePattern": "ayment"},
    "a pattern with Java's classes": {"subscribePattern": r"^[\p{Lower}&&[^e]]+$"},
    "a pattern with a quotation": {"subscribePattern": r"\Qorders.e\E"},
    "a pattern without a topic": {"subscribePattern": "^nothing$"},
    "headers": {**ORDERS, "includeHeaders": "true"},
    "headers in capitals": {**ORDERS, "INCLUDEHEADERS": "TRUE"},
    "no headers": {**ORDERS, "includeHeaders": "false"},
    "a missing topic": {"subscribe": "no-such-topic"},
    "a missing partition": {"assign": '{"orders": [9]}'},
    "nothing to read": {},
    "two ways to say what to read": {**ORDERS, **P0},
    "an empty subscription": {"subscribe": " , "},
    "an empty pattern": {"subscribePattern": ""},
    "an empty assignment": {"assign": "{}"},
    "an assignment that is not JSON": {"assign": "orders"},
    "an assignment that is no object": {"assign": "[1]"},
    "a pattern that is none": {"subscribePattern": "("},
}
STARTS: Mapping[str, Mapping[str, str]] = {
    "earliest": EARLIEST,
    "earliest in capitals": {"startingOffsets": "EARLIEST"},
    "offsets": {"startingOffsets": offsets(orders=ALL)},
    "offsets at the end": {"startingOffsets": offsets(orders={0: 10, 1: 5, 2: 0})},
    "offsets without a partition": {"startingOffsets": offsets(orders={0: 2})},
    "offsets of another topic": {"startingOffsets": offsets(payments={0: 2})},
    "offsets with a partition too much": {"startingOffsets": offsets(orders={**ALL, 7: 1})},
    "offsets that are text": {"startingOffsets": '{"orders": {"0": "2", "1": "0", "2": "0"}}'},
    "a word that is none": {"startingOffsets": "first"},
    "JSON that is none": {"startingOffsets": '{"orders"'},
    "one time": {"startingTimestamp": str(FIRST_MS + 2_500)},
    "one time before all": {"startingTimestamp": "1"},
    "one time after all": {"startingTimestamp": str(FIRST_MS + 999_000)},
    "one time after all, then latest": {
        "startingTimestamp": str(FIRST_MS + 999_000), "startingOffsetsByTimestampStrategy": "latest"
    },
    "a strategy that is none": {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "earliest"},
    "a time that is none": {"startingTimestamp": "yesterday"},
    "a negative time": {"startingTimestamp": "-5"},
    "times": {
        "startingOffsetsByTimestamp": times(3, 1, 0), "startingOffsetsByTimestampStrategy": "latest"
    },
    "times that some partitions have not": {"startingOffsetsByTimestamp": times(3, 1, 0)},
    "times without a partition": {"startingOffsetsByTimestamp": times(3)},
    "a time before times": {
        "startingTimestamp": str(FIRST_MS + 2_500), "startingOffsetsByTimestamp": times(4, 4, 4),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "times before offsets": {
        "startingOffsetsByTimestamp": times(3, 1, 0), "startingOffsetsByTimestampStrategy": "latest", **EARLIEST
    },
    "a time before offsets": {
        "startingTimestamp": str(FIRST_MS + 2_500), "startingOffsetsByTimestampStrategy": "latest", **EARLIEST
    },
}  # fmt: skip
ENDS: Mapping[str, Mapping[str, str]] = {
    "latest": {"endingOffsets": "latest"},
    "latest in capitals": {"endingOffsets": "LATEST"},
    "offsets": {"endingOffsets": offsets(orders={0: 4, 1: -1, 2: 0})},
    "offsets at the beginning": {"endingOffsets": offsets(orders={0: 0, 1: 0, 2: 0})},
    "earliest": {"endingOffsets": "earliest"},
    "earliest as an offset": {"endingOffsets": offsets(orders={0: -2, 1: -1, 2: -1})},
    "offsets without a partition": {"endingOffsets": offsets(orders={0: 4})},
    "offsets behind the end": {"endingOffsets": offsets(orders={0: 99, 1: -1, 2: -1})},
    "offsets behind the end, loss allowed": {
        "endingOffsets": offsets(orders={0: 99, 1: -1, 2: -1}), "failOnDataLoss": "false"
    },
    "one time": {"endingTimestamp": str(FIRST_MS + 2_500)},
    "one time before all": {"endingTimestamp": "1"},
    "one time after all": {"endingTimestamp": str(FIRST_MS + 999_000)},
    "times": {"endingOffsetsByTimestamp": times(3, 1, 0)},
    "a time before times": {
        "endingTimestamp": str(FIRST_MS + 2_500), "endingOffsetsByTimestamp": times(4, 4, 4)
    },
    "times before offsets": {
        "endingOffsetsByTimestamp": times(3, 1, 0), "endingOffsets": offsets(orders={0: 9, 1: 5, 2: 0})
    },
    "start behind end": {
        "startingOffsets": offsets(orders={0: 8, 1: 0, 2: 0}), "endingOffsets": offsets(orders={0: 2, 1: -1, 2: -1})
    },
    "a start and an end": {
        "startingOffsets": offsets(orders={0: 2, 1: 1, 2: 0}), "endingOffsets": offsets(orders={0: 7, 1: 3, 2: 0})
    },
    "start and end by time": {
        "startingTimestamp": str(FIRST_MS + 1_000), "endingTimestamp": str(FIRST_MS + 3_000),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "latest as a start": {"startingOffsets": "latest"},
    "latest as a start offset": {"startingOffsets": offsets(orders={0: -1, 1: -2, 2: -2})},
}  # fmt: skip
OTHERS: Mapping[str, Mapping[str, str]] = {
    "committed records": {"subscribe": "transactional", "kafka.isolation.level": "read_committed"},
    "uncommitted records": {"subscribe": "transactional", "kafka.isolation.level": "read_uncommitted"},
    "deleted records": {"subscribe": "trimmed", "startingOffsets": offsets(trimmed={0: 0})},
    "deleted records, loss allowed": {
        "subscribe": "trimmed", "startingOffsets": offsets(trimmed={0: 0}), "failOnDataLoss": "false"
    },
    "a start behind the end": {**P0, "startingOffsets": offsets(orders={0: 50})},
    "a start behind the end, loss allowed": {
        **P0, "startingOffsets": offsets(orders={0: 50}), "failOnDataLoss": "false"
    },
    "more tasks": {**ORDERS, "minPartitions": "7"},
    "no tasks": {**ORDERS, "minPartitions": "0"},
    "tasks that are no number": {**ORDERS, "minPartitions": "many"},
    "records of a task": {**ORDERS, "maxRecordsPerPartition": "2"},
    "no records of a task": {**ORDERS, "maxRecordsPerPartition": "0"},
    "small fetches": {**ORDERS, "kafka.max.partition.fetch.bytes": "100", "kafka.fetch.max.bytes": "200"},
    "a fetch that waits": {**ORDERS, "kafka.fetch.min.bytes": "10", "kafka.fetch.max.wait.ms": "50"},
    "a consumer group": {**ORDERS, "kafka.group.id": "mine"},
    "a prefix of groups": {**ORDERS, "groupIdPrefix": "mine"},
    "polls": {**ORDERS, "kafka.max.poll.records": "1", "kafkaConsumer.pollTimeoutMs": "30000"},
    "a rack": {**ORDERS, "kafka.client.rack": "a"},
    "tries for offsets": {**ORDERS, "fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "5"},
    "a client id": {**ORDERS, "kafka.client.id": "somebody"},
    "producer's options": {**ORDERS, "kafka.acks": "all", "kafka.linger.ms": "1"},
    "a socket's buffer": {**ORDERS, "kafka.receive.buffer.bytes": "65536"},
    "plain text": {**ORDERS, "kafka.security.protocol": "PLAINTEXT"},
    "an isolation level that is none": {**ORDERS, "kafka.isolation.level": "serializable"},
    "a reset policy": {**ORDERS, "kafka.auto.offset.reset": "earliest"},
    "automatic commits": {**ORDERS, "kafka.enable.auto.commit": "true"},
    "a deserializer of keys": {**ORDERS, "kafka.key.deserializer": "x"},
    "a deserializer of values": {**ORDERS, "kafka.value.deserializer": "x"},
    "interceptors": {**ORDERS, "kafka.interceptor.classes": "x"},
    "no boolean": {**ORDERS, "failOnDataLoss": "maybe"},
    "no boolean for headers": {**ORDERS, "includeHeaders": "maybe"},
    "an option that nobody knows": {**ORDERS, "startingOffset": "earliest"},
    "an option of Kafka that nobody knows": {**ORDERS, "kafka.no.such.option": "1"},
}  # fmt: skip
LIMITS: Mapping[str, Mapping[str, str]] = {
    "rows per trigger": {"maxOffsetsPerTrigger": "6"},
    "one row per trigger": {**P0, "maxOffsetsPerTrigger": "3"},
    "more rows than there are": {"maxOffsetsPerTrigger": "1000"},
    "no rows per trigger": {"maxOffsetsPerTrigger": "0"},
    "rows that are no number": {"maxOffsetsPerTrigger": "many"},
    "a minimum with a delay": {"minOffsetsPerTrigger": "4", "maxTriggerDelay": "1s"},
    "a minimum that is never there": {"minOffsetsPerTrigger": "1000", "maxTriggerDelay": "1s"},
    "a minimum above the maximum": {"minOffsetsPerTrigger": "10", "maxOffsetsPerTrigger": "5"},
    "a delay that is none": {"minOffsetsPerTrigger": "1", "maxTriggerDelay": "soon"},
    "an end": {"endingOffsets": "latest"},
    "an end by time": {"endingTimestamp": "1"},
    "ends by time": {"endingOffsetsByTimestamp": times(1, 1, 1)},
}


def with_topic(options: Mapping[str, str]) -> Mapping[str, str]:
    return {**({} if {"assign", "subscribe", "subscribePattern"} & set(options) else ORDERS), **options}


def all_cases() -> list[Case]:
    """Every case, each name once."""
    cases = [Case(f"batch: {name}", options) for name, options in SUBSCRIPTIONS.items()]
    cases += [Case(f"batch from {name}", with_topic(o)) for name, o in STARTS.items()]
    cases += [Case(f"batch to {name}", with_topic(o)) for name, o in ENDS.items()]
    cases += [Case(f"batch with {name}", with_topic(o)) for name, o in OTHERS.items()]
    from_earliest = {**SUBSCRIPTIONS, **{f"option: {name}": options for name, options in OTHERS.items()}}
    cases += [Case(f"stream: {name}", {**EARLIEST, **o}, stream=True) for name, o in from_earliest.items()]
    cases += [Case(f"stream from {name}", with_topic(o), stream=True) for name, o in STARTS.items()]
    cases += [Case("stream from latest", with_topic({"startingOffsets": "latest"}), stream=True)]
    cases += [Case("stream from nowhere in particular", ORDERS, stream=True)]
    cases += [
        Case(f"stream with {n}", with_topic({**EARLIEST, **o}), stream=True, again=True) for n, o in LIMITS.items()
    ]
    return cases


class Difference(NamedTuple):
    """What klamm answers instead: `rows` or an `error`; `why` says the reason."""

    klamm: str
    why: str


_TYPO = "a misspelt option would be ignored in silence; klamm names the most similar one"
_ASSERTION = "nothing is between them; the connector fails with an assertion in a task"
_NOTHING = "the connector reads nothing in silence"
DIFFERENCES: Mapping[str, Difference] = {
    "batch: a missing partition": Difference("error", _NOTHING),
    "stream: a missing partition": Difference("error", _NOTHING),
    "batch: an empty assignment": Difference("error", _NOTHING),
    "stream: an empty assignment": Difference("error", _NOTHING),
    "batch with an option that nobody knows": Difference("error", _TYPO),
    "batch with an option of Kafka that nobody knows": Difference("error", _TYPO),
    "stream: option: an option that nobody knows": Difference("error", _TYPO),
    "stream: option: an option of Kafka that nobody knows": Difference("error", _TYPO),
    "batch with a start behind the end, loss allowed": Difference("rows", _ASSERTION),
    "stream with no rows per trigger": Difference("error", "the stream would never read anything"),
    "stream with an end by time": Difference("error", "the connector ignores it, and the stream has no end"),
}


def outcome(found: Mapping[str, Any]) -> str:
    """`rows` or `error`."""
    return "error" if "error" in found else "rows"
