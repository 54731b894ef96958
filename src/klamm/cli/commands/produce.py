"""`klamm produce`, with kcat's letters."""

from typing import Annotated

import typer

from klamm.cli.admin.client import parse_addresses
from klamm.cli.options import LOCAL, Bootstrap, Progress
from klamm.cli.records.produce import ProduceOptions, check_options, produce
from klamm.cli.records.running import run_stream
from klamm.cli.records.text import argument_bytes, parse_delimiter
from klamm.client.partitioners import PARTITIONERS
from klamm.client.producer import MAX_BATCH_BYTES, NO_ACKS, ProducerSettings
from klamm.client.records import ALL_IN_SYNC
from klamm.model.errors import UsageError
from klamm.runtime.world import real_world
from klamm.wire.compression import Codec

_ACKS = {"0": NO_ACKS, "1": 1, "all": ALL_IN_SYNC, "-1": ALL_IN_SYNC}

Files = Annotated[
    list[str] | None,
    typer.Argument(
        help="files, each of which is one message, or with --lines one message per line; default: standard input"
    ),
]
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="topic to which all records are sent")]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="partition to which all records are sent")
]
Partitioner = Annotated[
    str | None,
    typer.Option(
        "--partitioner", help="how keys choose partitions: murmur2 as in Apache Kafka (default), or crc32 as in kcat"
    ),
]
Key = Annotated[str | None, typer.Option("--key", "-k", help="key of all records")]
KeyDelimiter = Annotated[
    str | None, typer.Option("--key-delimiter", "-K", help=r"text between key and payload in a line, for example '\t'")
]
Delimiter = Annotated[str, typer.Option("--delimiter", "-D", help="text between two messages")]
Headers = Annotated[list[str] | None, typer.Option("--header", "-H", help="NAME=VALUE; repeatable")]
Null = Annotated[bool, typer.Option("--null", "-Z", help="send empty keys and payloads as null")]
AsJsonLines = Annotated[bool, typer.Option("--json", "-J", help="read JSON lines as `klamm consume -J` prints them")]
Lines = Annotated[bool, typer.Option("--lines", "-l", help="send each line of a file as a message")]
Compression = Annotated[
    str, typer.Option("--compression", "-z", help="compression of batches: none, gzip, snappy, lz4 or zstd")
]
Acks = Annotated[str, typer.Option("--acks", help="acknowledgements to wait for: 0, 1 or all")]
Idempotent = Annotated[
    bool | None,
    typer.Option("--idempotent/--not-idempotent", help="let brokers drop the duplicates of retries; needs --acks all"),
]
BatchBytes = Annotated[
    int, typer.Option("--batch-bytes", min=1, max=1 << 30, help="maximum bytes of a batch before compression")
]
SendTimeout = Annotated[
    float, typer.Option("--timeout", min=0.1, help="give up when a partition accepts no records for this many seconds")
]


def command(
    files: Files = None,
    topic: Topic = None,
    bootstrap: Bootstrap = LOCAL,
    partition: Partition = None,
    partitioner: Partitioner = None,
    key: Key = None,
    key_delimiter: KeyDelimiter = None,
    delimiter: Delimiter = r"\n",
    header: Headers = None,
    null: Null = False,
    as_json: AsJsonLines = False,
    lines: Lines = False,
    compression: Compression = "none",
    acks: Acks = "all",
    idempotent: Idempotent = None,
    batch_bytes: BatchBytes = MAX_BATCH_BYTES,
    timeout: SendTimeout = 60.0,
    progress: Progress = None,
) -> None:
    """Produce records from standard input or files: each line is one, until the input ends or Ctrl-C."""
    settings = ProducerSettings(
        acks=_parse_acks(acks),
        codec=_parse_codec(compression),
        is_idempotent=_parse_idempotence(idempotent, acks),
        timeout_s=timeout,
        max_batch_bytes=batch_bytes,
    )
    if partitioner is not None and partitioner not in PARTITIONERS:
        raise UsageError(f"--partitioner {partitioner!r} is not a partitioner. Give one of {', '.join(PARTITIONERS)}.")
    options = ProduceOptions(
        topic=topic,
        partition=partition,
        partitioner=partitioner,
        key=None if key is None else argument_bytes(key),
        key_delimiter=None if key_delimiter is None else parse_delimiter("--key-delimiter", key_delimiter),
        delimiter=parse_delimiter("--delimiter", delimiter),
        headers=tuple(map(parse_header, header or ())),
        empty_is_null=null,
        is_json=as_json,
        by_lines=lines,
        files=tuple(files or ()),
        producer=settings,
        progress=progress,
    )
    check_options(options)
    addresses = parse_addresses(bootstrap)
    raise typer.Exit(run_stream(lambda: produce(real_world(), addresses, options)))


def _parse_acks(text: str) -> int:
    """The number that stands for --acks. Raises UsageError."""
    if text not in _ACKS:
        raise UsageError(f"--acks {text!r} is not valid. Give 0, 1 or all.")
    return _ACKS[text]


def _parse_codec(name: str) -> Codec:
    """The codec of --compression. Raises UsageError."""
    try:
        return Codec[name.upper()]
    except KeyError:
        names = ", ".join(codec.name.lower() for codec in Codec)
        raise UsageError(f"--compression {name!r} is not a codec. Give one of {names}.") from None


def _parse_idempotence(asked: bool | None, acks: str) -> bool:
    """Whether the producer is idempotent: by default with acks=all. Raises UsageError."""
    is_possible = _ACKS[acks] == ALL_IN_SYNC
    if asked and not is_possible:
        raise UsageError(f"--idempotent needs --acks all, not --acks {acks}: omit one of them.")
    return is_possible if asked is None else asked


def parse_header(text: str) -> tuple[str, bytes | None]:
    """A header of `NAME=VALUE`; `NAME` alone has the value null. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"--header {text!r} has no name. Give NAME=VALUE.")
    if argument_bytes(name) != name.encode(errors="replace"):
        raise UsageError(f"--header {text!r}: the name is not UTF-8. Only values may be other bytes.")
    return name, argument_bytes(value) if equals else None
