"""Valid, lying and damaged batches, sent to klamm and to Apache Kafka 3.9.1: same errors, offsets and stored bytes.

    python -m tests.differential.batch_judge [--batches 50000] [--seed 1] [--every-bit]

Both get the same Produce requests in the same order, over one connection each, and at the end the same fetches. The
differences of docs/differences.md are known by rule (`known_difference`); any other fails. With `--every-bit` the
requests are not drawn: they have short message sets of the formats 0 and 1, with each bit flipped in turn.
"""

import argparse
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from tests.support import apache_kafka
from tests.support.cluster import Cluster

from klamm.embedded.nodes import klamm_node
from klamm.model.errors import ErrorCode
from klamm.wire.api import ApiKey
from klamm.wire.compression import Codec, compress
from klamm.wire.frames import RequestHeader, decode_response, encode_request
from klamm.wire.messages import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from klamm.wire.records import BatchHeader, CorruptRecords, NewRecord, batches, build_batch, header_at, payload_of
from klamm.wire.records.batch import HEADER_BYTES, LOG_APPEND_TIME_BIT, MAGIC, sealed_batch
from klamm.wire.records.legacy import Message, encode_message, encode_messages

TOPICS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {"cleanup.policy": "compact"},
    "bounded": {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"},
    "small": {"max.message.bytes": "400"},
    "uncompressed": {"compression.type": "uncompressed"},
}
BATCH_VERSIONS: Final = (3, 5, 7, 8, 9)
OLD_VERSIONS: Final = (0, 1, 2)
FETCH_VERSION: Final = 11
FETCH_BYTES: Final = 1 << 20
_PROGRESS_S: Final = 5.0
MAX_SHOWN: Final = 50


class Sent(NamedTuple):
    """One Produce request; `kind` names what was drawn."""

    kind: str
    topic: str
    version: int
    content: bytes


class Answer(NamedTuple):
    """What a broker answers for it; the error is None where it closes the connection."""

    error: int | None
    base_offset: int = -1
    has_append_time: bool = False


# ---- drawing


def draw(rng: Random, now_ms: int) -> Sent:
    """A request with one drawn batch, or several."""
    topic = rng.choice(list(TOPICS))
    is_old = rng.random() < 0.3
    kind, content = (_draw_old if is_old else _draw_batch)(rng, now_ms)
    if rng.random() < 0.25:
        damage = rng.choice(list(_DAMAGES))
        kind, content = f"{kind}, {damage}", _DAMAGES[damage](rng, content)
    wrong_version = rng.random() < 0.02
    versions = OLD_VERSIONS if is_old != wrong_version else BATCH_VERSIONS
    return Sent(kind, topic, rng.choice(versions), content)


def _timestamp(rng: Random, now_ms: int) -> int:
    return rng.choice((now_ms, now_ms - 1, now_ms - 86_400_000, now_ms + 86_400_000, -1, 0))


def _records(rng: Random, now_ms: int) -> list[NewRecord]:
    count = rng.choice((1, 1, 2, 3, 10, 40))
    has_keys = rng.random() < 0.7
    return [
        NewRecord(
            None if rng.random() < 0.1 else bytes(rng.choices(b"abc", k=rng.randint(0, 30))),
            b"k%d" % rng.randint(0, 9) if has_keys and rng.random() < 0.97 else None,
            _timestamp(rng, now_ms) if rng.random() < 0.1 else now_ms + rng.randint(-5, 5),
            ((("h", b"x"),) if rng.random() < 0.1 else ()),
        )
        for _ in range(count)
    ]


def _draw_batch(rng: Random, now_ms: int) -> tuple[str, bytes]:
    """A batch of format 2, valid or with a header that lies under a right checksum."""
    content = build_batch(_records(rng, now_ms), rng.choice(list(Codec)))
    if rng.random() < 0.5:
        return "batch", content
    header = header_at(content)
    name = rng.choice(list(_LIES))
    return f"batch, {name}", sealed_batch(_LIES[name](rng, header), content[HEADER_BYTES:])


_LIES: Final[dict[str, Callable[[Random, BatchHeader], BatchHeader]]] = {
    "base offset": lambda rng, h: h._replace(base_offset=rng.choice((1, -1, 2**40))),
    "record count": lambda rng, h: h._replace(record_count=rng.choice((0, -1, h.record_count + 1, 2**31 - 1))),
    "last offset delta": lambda rng, h: h._replace(
        last_offset_delta=rng.choice((-1, h.last_offset_delta + 1, 2**31 - 1))
    ),
    "count and delta": lambda rng, h: h._replace(
        last_offset_delta=h.last_offset_delta + 1, record_count=h.record_count + 1
    ),
    "max timestamp": lambda rng, h: h._replace(max_timestamp=rng.choice((-1, 0, 2**62))),
    "leader epoch": lambda rng, h: h._replace(partition_leader_epoch=7),
    "codec": lambda rng, h: h._replace(attributes=rng.choice((1, 2, 3, 4, 5, 7))),
    "append time bit": lambda rng, h: h._replace(attributes=h.attributes | LOG_APPEND_TIME_BIT),
    "control bit": lambda rng, h: h._replace(attributes=h.attributes | 0x20),
    "unused bits": lambda rng, h: h._replace(attributes=h.attributes | 0x100),
    "producer without sequence": lambda rng, h: h._replace(producer_id=5, producer_epoch=0, base_sequence=-1),
    "producer": lambda rng, h: h._replace(producer_id=rng.randint(1, 5), producer_epoch=0, base_sequence=0),
}


def _draw_old(rng: Random, now_ms: int) -> tuple[str, bytes]:
    """A message set of format 0 or 1, valid or wrong within."""
    magic = rng.choice((0, 1))
    codec = rng.choice((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4))
    messages = [Message(n, r.timestamp if magic else -1, r.key, r.value) for n, r in enumerate(_records(rng, now_ms))]
    kind = f"format {magic} {codec.name.lower()}"
    content = encode_messages(messages, magic, codec)
    trouble = rng.random()
    if trouble < 0.6:
        return kind, content
    name = rng.choice(
        ("nested", "other format within", "zero offsets", "two formats", "two wrappers", "zstd", "append time")
    )
    if name == "nested":
        wrapped = Message(len(messages) - 1, messages[0].timestamp, None, compress(Codec.GZIP, content))
        return f"{kind}, {name}", encode_message(wrapped, magic, Codec.GZIP)
    if name == "other format within":
        inner = b"".join(encode_message(message, 1 - magic) for message in messages)
        wrapped = Message(len(messages) - 1, messages[0].timestamp, None, compress(Codec.GZIP, inner))
        return f"{kind}, {name}", encode_message(wrapped, magic, Codec.GZIP)
    if name == "zero offsets":
        return f"{kind}, {name}", encode_messages([m._replace(offset=0) for m in messages], magic, codec)
    if name == "two formats":
        return f"{kind}, {name}", content + encode_messages(messages, 1 - magic, codec)
    if name == "two wrappers":
        return f"{kind}, {name}", content + encode_messages(messages, magic, Codec.GZIP)
    if name == "zstd":
        return f"{kind}, {name}", encode_messages(messages, magic, Codec.ZSTD)
    return f"{kind}, {name}", encode_messages(messages, magic, codec, now_ms)


def _flip(rng: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


_DAMAGES: Final[dict[str, Callable[[Random, bytes], bytes]]] = {
    "flipped bit": _flip,
    "cut off": lambda rng, content: content[: rng.randrange(len(content))],
    "bytes behind": lambda rng, content: content + bytes(rng.randrange(256) for _ in range(rng.randint(1, 30))),
    "twice": lambda rng, content: content + content,
    "zeros": lambda rng, content: bytes(len(content)),
}


def every_bit() -> Iterator[Sent]:
    """Requests with message sets of the old formats, each bit flipped in turn."""
    now_ms = int(time.time() * 1000)
    long = [Message(n + 5, -1, b"k", bytes(60)) for n in range(9)]
    contents = {"large offsets": encode_messages(long, 0, Codec.NONE)}
    for magic in (0, 1):
        two = [Message(n, now_ms if magic else -1, b"k", b"v" * 8) for n in range(2)]
        contents[f"one of format {magic}"] = encode_messages(two[:1], magic, Codec.NONE)
        contents[f"two of format {magic}"] = encode_messages(two, magic, Codec.NONE)
        contents[f"gzip of format {magic}"] = encode_messages(two, magic, Codec.GZIP)
    for name, content in contents.items():
        for bit in range(8 * len(content)):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            kind = f"{name}, byte {bit // 8}, bit {bit % 8}"
            yield Sent(kind, "plain", 2, bytes(changed))
            yield Sent(kind, "small", 0, bytes(changed))


# ---- asking


class Broker:
    """One broker over one connection, which is opened again where the broker closes it."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def produce(self, sent: Sent) -> Answer:
        data = TopicProduceData(name=sent.topic, partition_data=[PartitionProduceData(index=0, records=sent.content)])
        response = self._ask(ApiKey.PRODUCE, sent.version, ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data]))
        if response is None:
            return Answer(None)
        (result,) = response.responses[0].partition_responses
        return Answer(result.error_code, result.base_offset, result.log_append_time_ms != -1)

    def stored(self, topic: str) -> Iterator[bytes]:
        """Every batch of the topic, as it is stored."""
        offset = 0
        while True:
            wanted = FetchPartition(
                partition=0,
                current_leader_epoch=-1,
                fetch_offset=offset,
                log_start_offset=-1,
                partition_max_bytes=FETCH_BYTES,
            )
            request = FetchRequest(
                replica_id=-1,
                max_wait_ms=0,
                min_bytes=1,
                max_bytes=FETCH_BYTES,
                session_epoch=-1,
                topics=[FetchTopic(topic=topic, partitions=[wanted])],
            )
            response = self._ask(ApiKey.FETCH, FETCH_VERSION, request)
            assert response is not None, f"a fetch of {topic} at {offset} closes the connection"
            content = response.responses[0].partitions[0].records
            if not content:
                return
            for header in batches(content):
                yield bytes(content[header.position : header.position + header.size])
                offset = header.next_offset

    def _ask(self, key: ApiKey, version: int, message: Any) -> Any:
        """The response; None where the broker closes the connection."""
        if self._socket is None:
            host, port = self._address.rsplit(":", 1)
            self._socket = socket.create_connection((host, int(port)), 30)
        try:
            self._socket.sendall(b"".join(encode_request(RequestHeader(key, version, 1, "judge"), message)))
            (size,) = struct.unpack(">i", self._receive(4))
            return decode_response(self._receive(size), key, version)[1]
        except ConnectionError:
            self.close()
            return None

    def _receive(self, count: int) -> bytes:
        assert self._socket is not None
        content = b""
        while len(content) < count:
            part = self._socket.recv(count - len(content))
            if not part:
                raise ConnectionResetError
            content += part
        return content

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


# ---- comparing


INVALID, TIMESTAMP, UNKNOWN, CORRUPT = (
    ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.CORRUPT_MESSAGE,
)  # fmt: skip


def known_difference(sent: Sent, ours: Answer, theirs: Answer) -> str | None:
    """Which row of docs/differences.md explains different answers; None where none does."""
    if theirs.error == UNKNOWN and ours.error in (INVALID, CORRUPT, ErrorCode.MESSAGE_TOO_LARGE):
        return "UNKNOWN_SERVER_ERROR for what cannot be decompressed or numbered"
    try:
        header = header_at(sent.content)
    except CorruptRecords:
        return None
    if sent.topic != "append-time" and header.attributes & LOG_APPEND_TIME_BIT and ours.error == TIMESTAMP:
        return "a LogAppendTime batch for a CreateTime topic"
    if (
        ours.error
        and theirs.error
        and sent.version < min(BATCH_VERSIONS)
        and ("two formats" in sent.kind or "twice" in sent.kind)
    ):
        return "of two faults in old requests, the other one is named"
    if theirs.error == INVALID and ours.error == 0 and header.magic == MAGIC and header.record_count > 16:
        return "records behind the first 16 are not looked at"
    return None


def stored_difference(topic: str, ours: bytes, theirs: bytes) -> str | None:
    """How two stored batches differ, but for offsets, leader epoch, append time and the bytes of a compression."""
    left, right = header_at(ours), header_at(theirs)
    names = ["attributes", "last_offset_delta", "base_timestamp", "producer_id", "producer_epoch", "base_sequence"]
    names += ["record_count", *([] if topic == "append-time" else ["max_timestamp"])]
    for name in names:
        if getattr(left, name) != getattr(right, name):
            return f"{name} is {getattr(left, name)}, in Apache Kafka {getattr(right, name)}"
    if ours[HEADER_BYTES:] != theirs[HEADER_BYTES:] and _payload(ours, left) != _payload(theirs, right):
        return "the records differ"
    return None


def _payload(content: bytes, header: BatchHeader) -> bytes:
    """The decompressed records; as they are where they cannot be decompressed."""
    try:
        return payload_of(content, header)
    except CorruptRecords:
        return content[HEADER_BYTES:]


class Judge:
    """Sends to both brokers and collects differences."""

    def __init__(self, klamm: Broker, kafka: Broker) -> None:
        self._brokers = klamm, kafka
        self._requests: dict[int, Sent] = {}
        self._stored: dict[str, tuple[list[int], list[int]]] = {topic: ([], []) for topic in TOPICS}
        self._last: dict[str, list[int]] = {topic: [-1, -1] for topic in TOPICS}
        self._skew: dict[str, int | None] = dict.fromkeys(TOPICS, 0)
        self.kinds: Counter[str] = Counter()
        self.known: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.differences: list[str] = []

    def ask(self, number: int, sent: Sent) -> None:
        """Send one request to both."""
        ours, theirs = (broker.produce(sent) for broker in self._brokers)
        self.kinds[sent.kind] += 1
        self.errors["closed" if theirs.error is None else ErrorCode(theirs.error).name] += 1
        self._requests[number] = sent
        for side, answer in enumerate((ours, theirs)):
            if answer.error == 0 and answer.base_offset > self._last[sent.topic][side]:
                self._stored[sent.topic][side].append(number)
                self._last[sent.topic][side] = answer.base_offset
        if (ours.error, ours.has_append_time) != (theirs.error, theirs.has_append_time):
            reason = known_difference(sent, ours, theirs)
            if reason is None:
                self._add(number, f"{_text(ours)}, in Apache Kafka {_text(theirs)}")
            else:
                self.known[reason] += 1
            self._skew[sent.topic] = None  # offsets are apart now
        elif ours.error == 0 and self._stored[sent.topic][0][-1:] == self._stored[sent.topic][1][-1:] == [number]:
            skew, self._skew[sent.topic] = self._skew[sent.topic], ours.base_offset - theirs.base_offset
            if skew is not None and skew != self._skew[sent.topic]:
                self._add(number, f"base offset {ours.base_offset}, in Apache Kafka {theirs.base_offset}")

    def compare_stored(self) -> None:
        """Fetch everything from both, and compare what was stored of each request."""
        for topic in TOPICS:
            found = []
            for side, broker in enumerate(self._brokers):
                contents = list(broker.stored(topic))
                numbers = self._stored[topic][side]
                if len(contents) != len(numbers):
                    name = ("klamm", "Apache Kafka")[side]
                    self.differences.append(f"{topic}: {name} stored {len(contents)} of {len(numbers)} batches")
                found.append(dict(zip(numbers, contents, strict=False)))
            for number in sorted(found[0].keys() & found[1].keys()):
                wrong = stored_difference(topic, found[0][number], found[1][number])
                if (
                    wrong is not None
                    and wrong.startswith("max_timestamp")
                    and "max timestamp" in self._requests[number].kind
                ):
                    self.known["a largest timestamp that lies is stored where the records need not be read"] += 1
                elif wrong is not None:
                    self._add(number, f"stored: {wrong}")

    def _add(self, number: int, text: str) -> None:
        """Note a difference that no row explains."""
        sent = self._requests[number]
        where = f"batch {number}: {sent.kind}, version {sent.version}, topic {sent.topic}"
        self.differences.append(f"{where}: {text}: {sent.content[:80].hex()}")


def _text(answer: Answer) -> str:
    """An answer in words."""
    if answer.error is None:
        return "closed"
    return f"{ErrorCode(answer.error).name} at {answer.base_offset}{' with a timestamp' * answer.has_append_time}"


def drawn(count: int, seed: int) -> Iterator[Sent]:
    """So many drawn requests."""
    rng, now_ms = Random(seed), int(time.time() * 1000)
    return (draw(rng, now_ms) for _ in range(count))


def run(directory: Path, requests: Iterator[Sent], report: Callable[[str], None]) -> Judge:
    """Send the requests to both, and compare what they answer and store."""
    with (
        Cluster(directory / "klamm", 1, command=klamm_node) as klamm,
        Cluster(directory / "apache", 1, command=apache_kafka.broker()) as kafka,
    ):
        for topic, configs in TOPICS.items():
            for cluster in (klamm, kafka):
                cluster.create_topic(topic, 1, 1, configs)
        judge = Judge(Broker(klamm.node(1).address), Broker(kafka.node(1).address))
        reported, shown = time.monotonic(), 0
        for number, sent in enumerate(requests):
            judge.ask(number, sent)
            if time.monotonic() - reported > _PROGRESS_S:
                reported = time.monotonic()
                report(f"{number + 1} batches, {len(judge.differences)} unexplained differences")
                for difference in judge.differences[shown:MAX_SHOWN]:
                    report(difference)
                shown = len(judge.differences)
        judge.compare_stored()
    return judge


def main() -> int:
    """Judge, and print what was found; the exit status tells of unexplained differences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every-bit", action="store_true", help="flip each bit of old message sets instead of drawing")
    options = parser.parse_args()
    if (why := apache_kafka.why_missing()) is not None:
        print(why)
        return 2
    with tempfile.TemporaryDirectory(prefix="klamm-batches-") as directory:
        requests = every_bit() if options.every_bit else drawn(options.batches, options.seed)
        judge = run(Path(directory), requests, lambda text: print(text, flush=True))
    for title, counts in (("answers of Apache Kafka", judge.errors), ("known differences", judge.known)):
        print(f"{title}: " + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    for difference in judge.differences[:MAX_SHOWN]:
        print(difference)
    asked = sum(judge.kinds.values())
    print(f"{asked} batches, {len(judge.kinds)} kinds, {len(judge.differences)} unexplained differences")
    return 1 if judge.differences else 0


if __name__ == "__main__":
    sys.exit(main())
