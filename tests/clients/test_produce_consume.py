"""`klamm produce` and `klamm consume`: what one client writes the other reads, with groups, transactions and pipes."""

import base64
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka.partitioner.default import murmur2
from tests.clients.test_bad_input import assert_one_sentence
from tests.support import apache_kafka
from tests.support.cluster import Cluster
from tests.support.forked_klamm import run_klamm
from tests.support.group_members import COOPERATIVE_JAVA, COOPERATIVE_LIBRARIES, LIBRARIES, Members
from tests.support.kafka_tools import kafka_tools

from klamm.runtime.processes import ticks

PARTITIONS = 3
TIMEOUT_S = 60
BINARY = bytes(range(256))


def start(cluster: Cluster, *words: str, **streams: Any) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "klamm", *words, "-b", cluster.bootstrap]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen(command, **pipes)


class Said(NamedTuple):
    status: int
    out: bytes
    err: str


def run(cluster: Cluster, *words: str, given: bytes = b"", status: int = 0) -> Said:
    done = run_klamm(*words, "-b", cluster.bootstrap, given=given, timeout_s=TIMEOUT_S)
    said = Said(done.returncode, done.stdout, done.stderr.decode())
    assert said.status == status, (words, said)
    return said


def produce(cluster: Cluster, topic: str, given: bytes, *words: str) -> None:
    run(cluster, "produce", "-t", topic, *words, given=given)


def consume(cluster: Cluster, topic: str, *words: str) -> bytes:
    return run(cluster, "consume", "-t", topic, "-e", *words).out


def consume_json(cluster: Cluster, topic: str, *words: str) -> list[Any]:
    return [json.loads(line) for line in consume(cluster, topic, "-J", *words).splitlines()]


@pytest.fixture
def name(cluster: Cluster, own_name: str) -> str:
    """A topic and a group of this name; old timestamps do not matter."""
    cluster.create_topic(own_name, PARTITIONS, 3, {"retention.ms": "-1"})
    return own_name


class Seen(NamedTuple):
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Any


def read_with_librdkafka(cluster: Cluster, topic: str, count: int) -> list[Seen]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-witness"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    seen: list[Seen] = []
    for _ in ticks(TIMEOUT_S, 0):
        found = consumer.consume(count - len(seen), 1.0)
        assert not [m for m in found if m.error()]
        seen += [Seen(m.partition(), m.key(), m.value(), m.headers()) for m in found]
        if len(seen) >= count:
            break
    consumer.close()
    return seen


# ---- what one writes the other reads


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_reads_records_written_by_klamm_produce(cluster: Cluster, name: str, codec: str) -> None:
    lines = b"".join(b"key-%d|value %d\n" % (i, i) for i in range(200))
    produce(cluster, name, lines, "-K", "|", "-H", "origin=test", "-z", codec)

    seen = read_with_librdkafka(cluster, name, 200)

    assert sorted(m.value or b"" for m in seen) == sorted(b"value %d" % i for i in range(200))
    assert {tuple(m.headers or ()) for m in seen} == {(("origin", b"test"),)}
    assert all(m.partition == (murmur2(m.key) & 0x7FFFFFFF) % PARTITIONS for m in seen)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_klamm_produce_delivers_each_record_once_with_acks_0_1_and_all(cluster: Cluster, name: str, acks: str) -> None:
    lines = b"".join(b"%d\n" % i for i in range(2_000))
    produce(cluster, name, lines, "--acks", acks, "-p", "1", "--batch-bytes", "1000")

    assert consume(cluster, name, "-p", "1") == lines


def test_null_and_empty_keys_and_values_stay_distinct_from_produce_to_consume(cluster: Cluster, name: str) -> None:
    produce(cluster, name, b"a:\n:b\nno key\n\n", "-K", ":", "-p", "0")
    produce(cluster, name, b"a:\n", "-K", ":", "-p", "0", "-Z")

    seen = read_with_librdkafka(cluster, name, 5)

    assert [(m.key, m.value) for m in seen] == [
        (b"a", b""), (b"", b"b"), (None, b"no key"), (None, b""), (b"a", None)
    ]  # fmt: skip
    assert consume(cluster, name, "-K", ":", "-Z") == b"a:\n:b\nNULL:no key\nNULL:\na:NULL\n"


def test_klamm_consume_reads_records_written_by_librdkafka(cluster: Cluster, name: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "lz4"})
    headers: list[tuple[str, str | bytes | None]] = [("a", b"1"), ("a", BINARY), ("none", None)]
    producer.produce(name, BINARY, b"key", partition=2, timestamp=1_234, headers=headers)
    assert producer.flush(30) == 0

    [record] = consume_json(cluster, name)

    binary = {"base64": base64.b64encode(BINARY).decode()}
    assert record == {
        "topic": name, "partition": 2, "offset": 0, "tstype": "create", "ts": 1_234,
        "headers": ["a", "1", "a", binary, "none", None], "key": "key", "payload": binary,
    }  # fmt: skip
    form = r"%t %p %o %T %k %K %S\x21%%\n"
    assert consume(cluster, name, "-f", form) == b"%s 2 0 1234 key 3 256!%%\n" % name.encode()


def test_klamm_consume_piped_as_json_into_klamm_produce_copies_a_topic(cluster: Cluster, name: str) -> None:
    copy = f"{name}-copy"
    cluster.create_topic(copy, PARTITIONS, 3, {"retention.ms": "-1"})
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for i, value in enumerate([BINARY, None, "ä\n".encode()]):
        producer.produce(name, value, None if i == 1 else b"k%d" % i, i, timestamp=i + 1, headers=[("n", b"%d" % i)])
    assert producer.flush(30) == 0

    run(cluster, "produce", "-t", copy, "-J", given=consume(cluster, name, "-J"))

    original, copied = ({r.pop("partition"): r for r in consume_json(cluster, topic)} for topic in (name, copy))
    assert len(copied) == 3
    assert {p: {**r, "topic": name} for p, r in copied.items()} == original


def test_klamm_produce_sends_each_file_as_one_message_or_each_of_its_lines(
    cluster: Cluster, name: str, tmp_path: Path
) -> None:
    (tmp_path / "one").write_bytes(b"first\nsecond\n")
    (tmp_path / "two").write_bytes(b"third;fourth")
    paths = [str(tmp_path / "one"), str(tmp_path / "two")]

    run(cluster, "produce", "-t", name, "-p", "0", *paths)
    run(cluster, "produce", "-t", name, "-p", "0", "-l", "-D", ";", paths[1])

    assert consume(cluster, name, "-D", "|") == b"first\nsecond\n|third;fourth|third|fourth|"


def test_kafkas_console_tools_and_klamm_read_each_others_records(cluster: Cluster, name: str) -> None:
    if why := apache_kafka.why_missing():
        pytest.skip(why)
    lines = b"".join(b"k%d\tv%d\n" % (i % 7, i) for i in range(100))
    with_keys = ["--property", "parse.key=true"]
    tools = kafka_tools()
    written = tools.ask(cluster.bootstrap, "kafka-console-producer", "--topic", name, *with_keys, stdin=lines)
    assert written.status == 0, written.text
    ours = consume(cluster, name, "-K", r"\t")
    assert sorted(ours.splitlines()) == sorted(lines.splitlines())

    produce(cluster, name, lines, "-K", r"\t")
    read = tools.ask(
        cluster.bootstrap, "kafka-console-consumer", "--topic", name, "--from-beginning",
        "--max-messages", "200", "--property", "print.key=true", "--property", "print.partition=true",
    )  # fmt: skip
    assert read.status == 0, read.text
    places: dict[str, set[str]] = {}
    for line in read.output.splitlines():
        partition, key, _ = line.split("\t")
        places.setdefault(key, set()).add(partition)
    assert len(read.output.splitlines()) == 200
    assert len(places) == 7
    assert all(len(partitions) == 1 for partitions in places.values())  # both chose the same partition for a key


# ---- where reading begins and ends


@pytest.fixture
def numbered(cluster: Cluster, name: str) -> str:
    """Ten records in partition 0, one second apart, and ten in partition 1."""
    lines = [
        json.dumps({"payload": str(i), "partition": partition, "ts": 1_700_000_000_000 + 1_000 * i})
        for partition in (0, 1)
        for i in range(10)
    ]
    run(cluster, "produce", "-t", name, "-J", given="\n".join(lines).encode())
    return name


STARTS = {
    "": range(10),
    "-o beginning": range(10),
    "-o end": range(0),
    "-o 7": range(7, 10),
    "-o 10": range(0),
    "-o -2": range(8, 10),
    "-o -99": range(10),
    "--from 2023-11-14T22:13:28Z": range(8, 10),
    "--from 2023-11-14T23:13:28+01:00": range(8, 10),
    "-o s@1700000008500": range(9, 10),
    "--from 2030-01-01T00:00Z": range(0),
    "--since 10m": range(0),
    "--until 2023-11-14T22:13:22Z": range(2),
    "-o 1 --until 1700000003000": range(1, 3),
    "-c 4": range(4),
}


def test_klamm_consume_starts_and_stops_at_the_given_offsets_times_and_counts(cluster: Cluster, numbered: str) -> None:
    for words, expected in STARTS.items():
        said = consume(cluster, numbered, "-p", "0", *words.split())
        assert said == b"".join(b"%d\n" % i for i in expected), words
    assert len(consume(cluster, numbered, "-c", "15").splitlines()) == 15
    assert run(cluster, "consume", "-t", numbered, "--until", "2023-11-14T22:13:22Z").out.count(b"\n") == 4


def test_klamm_consume_reports_deleted_records_and_continues_after_them(cluster: Cluster, numbered: str) -> None:
    consume(cluster, numbered, "-p", "0", "-G", numbered, "-o", "beginning", "-c", "2")
    admin = cluster.admin()  # it must outlive the answer
    for done in admin.delete_records([TopicPartition(numbered, 0, 6)]).values():
        done.result(30)

    said = run(cluster, "consume", "-t", numbered, "-p", "0", "-G", numbered, "-e")

    assert said.out == b"6\n7\n8\n9\n"
    assert f"{numbered}-0: offset 2 is not in the log" in said.err
    assert "begins at offset 6" in said.err


# ---- groups


def committed(cluster: Cluster, name: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": name})
    found = consumer.committed([TopicPartition(name, number) for number in range(PARTITIONS)], 30)
    consumer.close()
    return [p.offset for p in found]


def test_klamm_consume_with_a_group_resumes_at_the_committed_offsets(cluster: Cluster, numbered: str) -> None:
    first = consume(cluster, numbered, "-G", numbered, "-o", "beginning", "-c", "13")
    assert sum(offset for offset in committed(cluster, numbered) if offset > 0) == 13
    rest = consume(cluster, numbered, "-G", numbered)
    assert sorted((first + rest).split()) == sorted(b"%d" % i for i in [*range(10)] * 2)

    assert consume(cluster, numbered, "-G", numbered) == b""
    produce(cluster, numbered, b"new\n")
    assert consume(cluster, numbered, "-G", numbered, "--no-commit") == b"new\n"
    assert consume(cluster, numbered, "-G", numbered) == b"new\n"


def test_klamm_consume_with_a_new_group_begins_at_the_log_end(cluster: Cluster, numbered: str) -> None:
    assert consume(cluster, numbered, "-G", numbered) == b""


@pytest.mark.parametrize("library", [*LIBRARIES, *COOPERATIVE_LIBRARIES, *COOPERATIVE_JAVA])
def test_klamm_consume_shares_a_group_with_members_of_other_client_libraries(
    cluster: Cluster, members: Members, name: str, library: str, tmp_path: Path, client_rounds: int
) -> None:
    """Each side leads the group once; no record is lost while members come and go."""
    if library != "confluent" and client_rounds == 1:
        pytest.skip("`make prove` runs it")
    output = tmp_path / "out"
    with output.open("wb") as out:
        ours = start(cluster, "consume", "-t", name, "-G", name, "-o", "beginning", stdout=out)
    try:
        produce(cluster, name, b"".join(b"a%d:a%d\n" % (i, i) for i in range(60)), "-K", ":")
        members.wait_until("klamm reads alone", lambda: output.read_bytes().count(b"\n") == 60)
        theirs = members.start(library)
        members.wait_until("they share", lambda: len(theirs.assigned) in (1, 2))
        produce(cluster, name, b"".join(b"b%d:b%d\n" % (i, i) for i in range(60)), "-K", ":")

        def all_read() -> bool:
            values = {r.value for r in members.consumed} | set(output.read_text().split())
            return values >= {f"{letter}{i}" for letter in "ab" for i in range(60)}

        members.wait_until("both read", all_read)
        assert theirs.consumed
        ours.send_signal(signal.SIGINT)
        assert ours.wait(TIMEOUT_S) == 0, ours.communicate()
        members.wait_until_shared(PARTITIONS, [theirs])  # it left, its session need not expire
        second = start(cluster, "consume", "-t", name, "-G", name, "-c", "1")
        members.wait_until("klamm is back", lambda: len(theirs.assigned) in (1, 2))
        theirs.stop()
        produce(cluster, name, b"last\n")
        assert second.communicate(timeout=TIMEOUT_S)[0].count(b"\n") == 1
        assert second.returncode == 0
    finally:
        ours.kill()
        ours.wait()


def test_klamm_consume_takes_over_from_a_killed_member_after_its_session_timeout(cluster: Cluster, name: str) -> None:
    words = ["consume", "-t", name, "-G", name, "-o", "beginning", "--session-timeout", "6"]
    with start(cluster, *words) as victim:
        produce(cluster, name, b"first\n")
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"first\n"
        victim.kill()
    said = run(cluster, *words, "-c", "1")
    assert said.out == b"first\n"  # it was not committed


def test_klamm_consume_as_a_static_member_keeps_its_partitions_over_a_restart(cluster: Cluster, name: str) -> None:
    words = ["consume", "-t", name, "-G", name, "-o", "beginning", "--instance-id", "one", "-c", "1"]
    produce(cluster, name, b"1\n2\n", "-p", "0")
    assert run(cluster, *words).out == b"1\n"
    assert "Stable" in run(cluster, "groups", "describe", "--group", name).out.decode()
    assert run(cluster, *words).out == b"2\n"


# ---- transactions


def test_klamm_consume_with_read_committed_skips_aborted_records(cluster: Cluster, name: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    for number, ends in enumerate(
        [producer.commit_transaction, producer.abort_transaction, producer.commit_transaction]
    ):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(name, str(number).encode(), partition=partition)
        producer.flush(30)
        ends(30)
    producer.begin_transaction()
    producer.produce(name, b"open", partition=0)
    producer.flush(30)

    assert sorted(consume(cluster, name).split()) == [b"0"] * 3 + [b"2"] * 3
    uncommitted = consume(cluster, name, "--isolation-level", "read_uncommitted").split()
    assert sorted(uncommitted) == [b"0"] * 3 + [b"1"] * 3 + [b"2"] * 3 + [b"open"]
    producer.abort_transaction(30)


# ---- processes


def test_klamm_consume_exits_without_an_error_message_when_its_pipe_closes(cluster: Cluster, name: str) -> None:
    produce(cluster, name, b"x" * 100 + b"\n" * 1)
    produce(cluster, name, b"".join(b"%099d\n" % i for i in range(50_000)), "-p", "0")
    process = start(cluster, "consume", "-t", name, "-p", "0", "-o", "-50000")
    assert process.stdout is not None
    assert process.stdout.readline() == b"%099d\n" % 0
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_klamm_consume_exits_when_its_pipe_closes_also_where_no_record_comes_any_more(
    cluster: Cluster, name: str
) -> None:
    produce(cluster, name, b"x\n", "-p", "0")
    process = start(cluster, "consume", "-t", name, "-p", "0", "-c", "2")
    assert process.stdout is not None
    assert process.stdout.readline() == b"x\n"
    process.stdout.close()
    assert process.wait(TIMEOUT_S) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""


def test_klamm_produce_and_consume_handle_each_line_before_a_signal_ends_them(cluster: Cluster, name: str) -> None:
    producing = start(cluster, "produce", "-t", name, "-p", "0")
    assert producing.stdin is not None
    producing.stdin.write(b"typed\n")
    producing.stdin.flush()
    consuming = start(cluster, "consume", "-t", name, "-p", "0")
    assert consuming.stdout is not None
    assert consuming.stdout.readline() == b"typed\n"  # sent without waiting for more input
    producing.send_signal(signal.SIGINT)
    assert producing.wait(TIMEOUT_S) == 130
    consuming.send_signal(signal.SIGTERM)
    assert consuming.wait(TIMEOUT_S) == 0
    for process in (producing, consuming):
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_klamm_produce_and_consume_print_progress_to_stderr_only_on_request(cluster: Cluster, name: str) -> None:
    said = run(cluster, "produce", "-t", name, "--progress", given=b"a\nb\n")
    assert re.fullmatch(r"Sent 2 records, .* MB in .* s \(.*\)\n", said.err)
    said = run(cluster, "consume", "-t", name, "-e", "--progress")
    assert said.out.count(b"\n") == 2
    assert re.fullmatch(r"Read 2 records, .*, lag 0\n", said.err)


# ---- bad input

BAD = {
    "produce -t TOPIC -J": (b'{"payload": "a"}\nnonsense\n', "line 2: the line is not a record in JSON"),
    "produce -t TOPIC -J -p 0": (b'{"playload": "a"}', "unknown field `playload`"),
    "produce -J": (b'{"payload": "a"}', 'line 1: the record names no topic: add "topic", or pass --topic.'),
    "produce -J --no-progress": (b'{"payload": "a", "topic": "missing"}', "topic missing does not exist. Create it"),
    "produce -t TOPIC": (b'', ""),
    "produce -t TOPIC -p 7": (b"a", "partition 7 does not exist: TOPIC has partitions 0-2"),
    "produce -t missing": (b"a", "topic missing does not exist"),
    "produce -t TOPIC /missing/file": (b"", "Cannot read /missing/file: No such file or directory"),
    "produce -t TOPIC /": (b"", "/ is a directory"),
    "produce -t TOPIC -z zip": (b"", "--compression 'zip' is not a codec. Give one of none, gzip"),
    "produce -t TOPIC --acks 2": (b"", "--acks '2' is not valid. Give 0, 1 or all."),
    "produce -t TOPIC --acks 1 --idempotent": (b"", "--idempotent needs --acks all"),
    "consume -t missing": (b"", "--topic missing: there is no such topic"),
    "consume -t TOPIC -p 3": (b"", "--partition 3: TOPIC has partitions 0-2 only"),
    "consume -t TOPIC -o 99": (b"", "--offset 99 is outside of TOPIC-0, which has offsets 0 to"),
    "consume -t TOPIC -o first": (b"", "--offset 'first' is not a position to start from. Give beginning"),
    "consume -t TOPIC -o stored": (b"", "--offset stored needs --group"),
    "consume -t TOPIC --from noon": (b"", "--from 'noon' is not a time. Give YYYY-MM-DDTHH:MM"),
    "consume -t TOPIC --since 10x": (b"", "--since '10x' is not a duration. Give for example 10m"),
    "consume -t TOPIC -o 1 --since 1m": (b"", "--offset cannot be used with --since"),
    "consume -t TOPIC -f %q": (b"", "--format '%q': the field %q is unknown"),
    "consume -t TOPIC -G g --session-timeout 0.5": (b"", "group g: the broker refused the request with INVALID"),
}  # fmt: skip


def test_klamm_produce_and_consume_report_bad_input_in_one_sentence_with_a_remedy(cluster: Cluster, name: str) -> None:
    for words, (given, complaint) in BAD.items():
        done = run_klamm(*words.replace("TOPIC", name).split(), "-b", cluster.bootstrap, given=given)
        err = done.stderr.decode()
        assert complaint.replace("TOPIC", name) in err, (words, err)
        assert err.count("\n") == (1 if complaint else 0), (words, err)
        assert "Traceback" not in err


def test_klamm_produce_sends_the_records_before_a_malformed_line(cluster: Cluster, name: str) -> None:
    said = run(cluster, "produce", "-t", name, "-J", given=b'{"payload": "a"}\n{"payload": 1}\n', status=2)
    assert "line 2" in said.err
    assert "The 1 records before it were sent." in said.err
    assert consume(cluster, name) == b"a\n"


def test_klamm_produce_names_a_record_that_is_too_large(cluster: Cluster, name: str) -> None:
    large = b"x" * 2_000_000
    said = run(cluster, "produce", "-t", name, "-p", "0", given=b"first\n" + large + b"\nlast\n", status=1)
    assert "standard input, line 2: the leader of" in said.err
    assert "MESSAGE_TOO_LARGE" in said.err
    assert "raise max.message.bytes" in said.err


def test_klamm_produce_splits_a_batch_that_the_broker_refuses_as_too_large(cluster: Cluster, name: str) -> None:
    lines = b"".join(b"%04d%s\n" % (i, b"x" * 2_000) for i in range(2_000))
    produce(cluster, name, lines, "-p", "0", "--batch-bytes", "3000000")
    assert consume(cluster, name) == lines


def test_klamm_produce_and_consume_fail_with_the_address_when_no_broker_answers() -> None:
    for command in ("produce", "consume"):
        done = subprocess.run(
            [sys.executable, "-m", "klamm", command, "-t", "orders", "-b", "127.0.0.1:1", "--timeout", "1"],
            input="a\n", capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=os.environ,
        )  # fmt: skip
        assert_one_sentence(done, "127.0.0.1:1", "refused")
