"""A pipeline as its file declares it: parsed once, checked as far as that needs neither brokers nor Spark."""

import difflib
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum
from posixpath import abspath, basename, dirname, isabs, join
from typing import Any, Final, NamedTuple

from klamm.pipeline.fields import FIELDS, Expectation, Field, Step
from klamm.pipeline.yaml_tree import BadFile, Mapping, Node, Scalar, parse_yaml
from klamm.runtime.disk import Disk
from klamm.spark.errors import BadOption
from klamm.spark.option_parsers import HiddenValue
from klamm.spark.option_set import Reads
from klamm.spark.options import ReadOptions, read_options
from klamm.spark.sink_options import write_options

_BY_PATH: Final = {field.path: field for field in FIELDS}
_SECTIONS: Final = {p.rpartition(".")[0] for p in _BY_PATH if "." in p} | {"source", "sink", "dead_letter"}
DEFAULT_BATCH_BYTES: Final = "64m"
_SINK_OPTIONS: Final = "sink.options"
_OWN_OPTIONS: Final = {
    "kafka.bootstrap.servers": "source.bootstrap",
    "subscribe": "source.topics",
    "subscribepattern": "source.pattern",
    "startingoffsets": "source.start",
    "valueformat": "source.value.format",
    "valueschema": "source.value.schema",
    "schemaregistry": "source.value.registry",
    "schemaregistryauth": "source.value.registry_auth",
    "ondecodeerror": "dead_letter",
    "includeheaders": "nothing: headers are in the column record",
    "includerawvalue": "nothing: dead letters have the raw value",
}
"""Options of the source that have a field of their own, by name in lower case."""
_OWN_WRITE_OPTIONS: Final = {
    "kafka.bootstrap.servers": "sink.bootstrap instead",
    "topic": "sink.topic or dead_letter.topic instead",
    "delivery": "nothing: a pipeline always writes exactly-once",
    "writeid": "nothing: the pipeline names its writes",
    "writebatch": "nothing: the pipeline numbers its writes",
    "kafka.max.request.size": "max.message.bytes of the topic, which alone limits the records of a pipeline",
}
"""Options of writes that a pipeline sets itself, by name in lower case, and what to use."""
_MAX_REQUEST_BYTES: Final = 64 << 20
"""No pipeline sets a limit of its own for records: that of the topic, `max.message.bytes`, decides."""


_VALUE_FIELDS: Final = {
    "valueSchema": "source.value.schema",
    "schemaRegistry": "source.value.registry",
    "schemaRegistryAuth": "source.value.registry_auth",
}


class SinkKind(StrEnum):
    DELTA = "delta"
    PARQUET = "parquet"
    TOPIC = "topic"


class Upsert(NamedTuple):
    """Rows are replaced by newer ones with the same keys; `order` says what is newer.

    `delete` is a column that says whether the row of the keys is deleted instead.
    """

    keys: tuple[str, ...]
    order: tuple[str, ...]
    delete: str | None = None


class Spec(NamedTuple):
    """A pipeline. Paths are absolute; `lines` has the line of each field that the file has."""

    file: str
    name: str
    source_options: dict[str, str]
    reads: ReadOptions
    steps: tuple[Step, ...]
    expectations: tuple[Expectation, ...]
    sink: SinkKind
    target: str
    """The directory of the table, or the topic."""
    sink_bootstrap: str
    sink_options: dict[str, str]
    upsert: Upsert | None
    dead_letter_topic: str | None
    trigger_s: float | None
    state: str
    lines: dict[str, int]

    def write_to(self, topic: str, write_id: str, batch: int = 0) -> dict[str, str]:
        """The options of a write to a topic, which is recognised by its id and number."""
        return self.sink_options | {
            "kafka.bootstrap.servers": self.sink_bootstrap,
            "topic": topic,
            "delivery": "exactly-once",
            "writeId": write_id,
            "writeBatch": str(batch),
            "kafka.max.request.size": str(_MAX_REQUEST_BYTES),
        }

    def at(self, path: str) -> str:
        """Return file and line of a field, for an error; of its section where the file lacks the field."""
        parts = path.split(".")
        near = (".".join(parts[:n]) for n in range(len(parts), 0, -1))
        return place(self.file, next((self.lines[p] for p in near if p in self.lines), 1))


def place(file: str, line: int) -> str:
    """Return file and line as errors name them."""
    return f"{basename(file)}, line {line}"


def load_spec(disk: Disk, file: str) -> Spec:
    """Read and parse a pipeline's file. Raises BadFile."""
    path = abspath(file)
    try:
        text = disk.read(path).decode()
    except OSError as error:
        raise BadFile(f"Cannot read {file}: {error.strerror}. Give the path of a pipeline's file.") from error
    except UnicodeDecodeError as error:
        raise BadFile(f"{file} is not UTF-8 ({error.reason} at byte {error.start}). Save it as UTF-8.") from error
    return parse_spec(disk, path, text)


def parse_spec(disk: Disk, path: str, text: str) -> Spec:
    """Parse the text of a pipeline's file; `path` is absolute. Reads the file of the schema. Raises BadFile."""
    tree = parse_yaml(basename(path), text)
    nodes = dict(_flatten(path, tree, ""))
    given = {p: _parse(path, _BY_PATH[p], node) for p, node in nodes.items() if p in _BY_PATH}
    lines = {p: node.line for p, node in nodes.items()}
    values = {f.path: given.get(f.path, _default(f)) for f in FIELDS}
    for required in ("pipeline", "source.bootstrap"):
        if values[required] is None:
            raise BadFile(f"{basename(path)}: the field {required} is missing. Add it.")
    if values["source.value.schema_file"] is not None:
        values["source.value.schema"] = _read_schema(disk, path, values, lines)
    source_options = _source_options(path, values, lines)
    kind, target = _sink(path, values, lines)
    spec = Spec(
        file=path,
        name=values["pipeline"],
        source_options=source_options,
        reads=_read_options(path, source_options, values, lines),
        steps=values["steps"] or (),
        expectations=values["expect"] or (),
        sink=kind,
        target=target if kind is SinkKind.TOPIC else _beside(path, target),
        sink_bootstrap=values["sink.bootstrap"] or values["source.bootstrap"],
        sink_options=values["sink.options"] or {},
        upsert=_upsert(path, kind, values, lines),
        dead_letter_topic=values["dead_letter.topic"],
        trigger_s=values["trigger"],
        state=_beside(path, values["state"] or f"{values['pipeline']}.state"),
        lines=lines,
    )
    _check_contradictions(spec)
    return spec


def _flatten(path: str, tree: Mapping, prefix: str) -> Iterator[tuple[str, Node]]:
    """Each section and each field with its node. Raises BadFile for unknown ones."""
    for name, node in tree.items.items():
        full = f"{prefix}{name}"
        if full in _SECTIONS and full not in _BY_PATH:
            if not isinstance(node, Mapping):
                raise BadFile(f"{place(path, node.line)}: {full} must have fields below it, indented.")
            yield full, node
            yield from _flatten(path, node, f"{full}.")
        elif full in _BY_PATH:
            yield full, node
            if full == _SINK_OPTIONS and isinstance(node, Mapping):
                yield from ((f"{full}.{option}", item) for option, item in node.items.items())
        else:
            near = difflib.get_close_matches(full, _BY_PATH, n=1, cutoff=0.6)
            hint = f"Did you mean {near[0]}?" if near else f"Use some of: {', '.join(_BY_PATH)}."
            raise BadFile(f"{place(path, node.line)}: the field {full} does not exist. {hint}")


def _parse(path: str, field: Field, node: Node) -> Any:
    """Return the parsed value of a field. Raises BadFile."""
    try:
        return field.parse(node)
    except ValueError as error:
        text = getattr(node, "text", None)
        is_shown = text and not isinstance(error, HiddenValue) and repr(text) not in str(error)
        value = f"={text!r}" if is_shown else ""
        raise BadFile(f"{place(path, node.line)}: {field.path}{value}: {error}.") from error


def _default(field: Field) -> Any:
    """Return the parsed default of a field; None where it has none."""
    return None if field.default is None else field.parse(Scalar(field.default, 0))


def _beside(path: str, target: str) -> str:
    """The path below the directory of the file, unless it is absolute."""
    return target if isabs(target) else join(dirname(path), target)


def _source_options(path: str, values: dict[str, Any], lines: dict[str, int]) -> dict[str, str]:
    """The options of the streaming read. Raises BadFile for options that are fields."""
    further: dict[str, str] = values["source.options"] or {}
    for name in further:
        if field := _OWN_OPTIONS.get(name.lower()):
            raise BadFile(
                f"{place(path, lines['source.options'])}: source.options.{name} is not for here. Use {field}."
            )
    topics, pattern = values["source.topics"], values["source.pattern"]
    if (topics is None) == (pattern is None) and not any(n.lower() == "assign" for n in further):
        raise BadFile(f"{place(path, lines.get('source', 1))}: set exactly one of source.topics and source.pattern.")
    options = {"kafka.bootstrap.servers": values["source.bootstrap"], "startingOffsets": values["source.start"]}
    if topics is not None:
        options["subscribe"] = ",".join(topics)
    if pattern is not None:
        options["subscribePattern"] = pattern
    if values["source.value.format"] != "raw":
        options |= {"valueFormat": values["source.value.format"], "includeRawValue": "true"}
    if values["dead_letter.topic"] is not None:
        options["onDecodeError"] = "report"
    for option, field in _VALUE_FIELDS.items():
        if values[field] is not None:
            options[option] = values[field]
    if not any(n.lower() in ("maxoffsetspertrigger", "maxbytespertrigger") for n in further):
        options["maxBytesPerTrigger"] = DEFAULT_BATCH_BYTES
    return options | {"includeHeaders": "true", "kafka.isolation.level": "read_committed"} | further


def _read_schema(disk: Disk, path: str, values: dict[str, Any], lines: dict[str, int]) -> str:
    """Return the text of the file with the schema. Raises BadFile."""
    at, name = place(path, lines["source.value.schema_file"]), values["source.value.schema_file"]
    if values["source.value.schema"] is not None:
        raise BadFile(f"{at}: set only one of source.value.schema and source.value.schema_file.")
    try:
        return disk.read(_beside(path, name)).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise BadFile(
            f"{at}: source.value.schema_file={name!r}: cannot read it: {reason}. Correct the path."
        ) from error


def _read_options(path: str, options: dict[str, str], values: dict[str, Any], lines: dict[str, int]) -> ReadOptions:
    """Return the parsed options of the source. Raises BadFile with the line of the field that an option comes from."""
    try:
        reads = read_options(options, Reads.STREAM)
    except BadOption as error:
        text = str(error)
        places = {f: text.lower().find(o) for o, f in _OWN_OPTIONS.items() if f in lines}
        fields = sorted((f for f in places if places[f] >= 0), key=lambda f: places[f])
        field = "source.options" if values["source.options"] and not fields else (fields or ["source"])[0]
        at = place(path, lines.get(field, lines.get("source", 1)))
        raise BadFile(f"{at}: {field}: {_sentence(text)}") from error
    if reads.reports_losses:
        raise BadFile(
            f"{place(path, lines['source.options'])}: source.options.onDataLoss=report is not for pipelines, whose "
            "tables have no rows for lost ranges. Set fail or skip."
        )
    return reads


def _sink(path: str, values: dict[str, Any], lines: dict[str, int]) -> tuple[SinkKind, str]:
    """Return the kind of sink and its target. Raises BadFile unless there is exactly one."""
    found = [(kind, values[f"sink.{kind}"]) for kind in SinkKind if values[f"sink.{kind}"] is not None]
    if len(found) != 1:
        raise BadFile(f"{place(path, lines.get('sink', 1))}: set exactly one of sink.delta, sink.parquet, sink.topic.")
    return found[0]


def _upsert(path: str, kind: SinkKind, values: dict[str, Any], lines: dict[str, int]) -> Upsert | None:
    """Return the keys and the order of an upsert; None for append. Raises BadFile."""
    keys, order = values["sink.keys"], values["sink.order"]
    if values["sink.mode"] == "append":
        for field in ("sink.keys", "sink.order", "sink.delete"):
            if values[field] is not None:
                raise BadFile(
                    f"{place(path, lines[field])}: {field} is only for sink.mode upsert. Remove it, or set mode."
                )
        return None
    if kind is not SinkKind.DELTA:
        raise BadFile(f"{place(path, lines['sink.mode'])}: sink.mode=upsert is only for Delta tables. Set sink.delta.")
    if keys is None or order is None:
        raise BadFile(f"{place(path, lines['sink.mode'])}: sink.mode=upsert needs sink.keys and sink.order. Add them.")
    return Upsert(keys, order, values["sink.delete"])


def _check_contradictions(spec: Spec) -> None:
    """Raise BadFile where fields contradict each other."""
    if spec.reads.values.format in ("json", "avro") and spec.reads.values.schema is None:
        raise BadFile(
            f"{spec.at('source.value.format')}: source.value.schema is missing for {spec.reads.values.format}. Add the "
            "fields of the values, for example schema: id BIGINT, user STRING, or schema_file with an Avro schema."
        )
    written = [t for t in (spec.dead_letter_topic, spec.target if spec.sink is SinkKind.TOPIC else None) if t]
    if len(written) != len(set(written)):
        raise BadFile(
            f"{spec.at('dead_letter.topic')}: dead letters must not go to the topic of the sink. Name another topic."
        )
    try:
        options = write_options({"kafka.bootstrap.servers": spec.sink_bootstrap, "topic": "checked"}, Reads.BATCH)
    except BadOption as error:
        raise BadFile(f"{spec.at('sink.bootstrap')}: {error}.") from error
    _check_sink_options(spec, written)
    if not set(options.reads.bootstrap).isdisjoint(spec.reads.bootstrap):
        check_not_read(spec, written)


def _check_sink_options(spec: Spec, written: Collection[str]) -> None:
    """Raise BadFile for options of writes that the pipeline sets itself or that do not exist, and where it has none."""
    if spec.sink_options and not written:
        raise BadFile(
            f"{spec.at(_SINK_OPTIONS)}: {_SINK_OPTIONS} is only for writing to a topic, and this pipeline has a "
            f"{spec.sink} sink and no dead-letter topic. Remove it, or set dead_letter.topic."
        )
    for name in spec.sink_options:
        if instead := _OWN_WRITE_OPTIONS.get(name.lower()):
            path = f"{_SINK_OPTIONS}.{name}"
            raise BadFile(f"{spec.at(path)}: {path} is not for here. Use {instead}.")
    try:
        write_options(spec.write_to("checked", spec.name), Reads.BATCH)
    except BadOption as error:
        text = str(error)
        named = [name for name in spec.sink_options if name.lower() in text.lower()]
        path = f"{_SINK_OPTIONS}.{max(named, key=len)}" if named else _SINK_OPTIONS
        raise BadFile(f"{spec.at(path)}: {_SINK_OPTIONS}: {_sentence(text)}") from error


def _sentence(text: str) -> str:
    """The text with a mark at its end."""
    return text if text[-1] in ".?" else f"{text}."


def check_not_read(spec: Spec, written: Iterable[str]) -> None:
    """Raise BadFile where the pipeline reads a topic that it writes in the same cluster: it would never end."""
    same = [topic for topic in written if spec.reads.subscription.includes_topic(topic)]
    if same:
        pattern = spec.reads.subscription.pattern is not None
        raise BadFile(
            f"{spec.at('source.pattern' if pattern else 'source.topics')}: the pipeline would read {same[0]}, which it "
            f"writes. Name another topic{', or exclude it in the pattern' if pattern else ''}."
        )
