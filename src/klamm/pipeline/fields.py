"""Every field of a pipeline's file: how it is parsed, its default and its meaning. The manual is drawn from it."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from klamm.pipeline.yaml_tree import Mapping, Node, Scalar, Sequence
from klamm.spark.avro import parse_registry
from klamm.spark.option_parsers import parse_duration, parse_one_of, parse_pattern, parse_schema
from klamm.spark.secrets import parse_secret
from klamm.spark.sink_options import parse_topic

AVAILABLE_NOW: Final = "available-now"
MIN_TRIGGER_S: Final = 0.1


class Field(NamedTuple):
    """One field. `parse` raises ValueError, which says what the value must be; None as default means none."""

    path: str
    parse: Callable[[Node], Any]
    default: str | None
    meaning: str


def text_of(node: Node) -> str:
    """Return the text of a scalar. Raises ValueError for an empty one, a list or a mapping."""
    if not isinstance(node, Scalar):
        raise ValueError("the field has a list or a mapping; give one text")
    if not node.text.strip():
        raise ValueError("the field is empty; give it a value, or remove it")
    return node.text.strip()


def of_text(parse: Callable[[str], Any]) -> Callable[[Node], Any]:
    """Return a parser of nodes that parses the text of a scalar."""
    return lambda node: parse(text_of(node))


def list_of(parse: Callable[[str], Any]) -> Callable[[Node], tuple[Any, ...]]:
    """Return a parser of lists; a single text is a list of one."""

    def parse_list(node: Node) -> tuple[Any, ...]:
        """Return the parsed elements, each once. Raises ValueError."""
        items = node.items if isinstance(node, Sequence) else (node,)
        if not items:
            raise ValueError("the list is empty; give at least one element")
        return tuple(dict.fromkeys(parse(text_of(item)) for item in items))

    return parse_list


def parse_name(text: str) -> str:
    """Return the name of a pipeline. Raises ValueError."""
    if not re.fullmatch(r"[a-zA-Z0-9._-]{1,100}", text):
        raise ValueError(
            f"{text!r} cannot name a pipeline; give 1 to 100 letters, digits, dots, underscores and hyphens"
        )
    return text


def parse_identifier(text: str) -> str:
    """Return a name for SQL. Raises ValueError."""
    if not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]{0,127}", text):
        raise ValueError(
            f"{text!r} is not a name for SQL; give letters, digits and underscores, beginning with no digit"
        )
    return text


def parse_trigger(text: str) -> float | None:
    """Return the seconds between micro-batches; None for available-now. Raises ValueError."""
    if text == AVAILABLE_NOW:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a duration; give for example 500ms, 5s or 1m, or {AVAILABLE_NOW}") from None
    if seconds < MIN_TRIGGER_S:
        raise ValueError(f"{text!r} is too short for micro-batches; give at least 100ms")
    return seconds


class Step(NamedTuple):
    """One SQL statement; `view` is the name under which later steps read its result."""

    view: str
    sql: str
    line: int


class Expectation(NamedTuple):
    """A condition on the rows of `source`."""

    name: str
    condition: str
    line: int


def parse_steps(node: Node) -> tuple[Step, ...]:
    """Return the steps: SQL texts, or mappings of a name to SQL. Raises ValueError."""
    if not isinstance(node, Sequence) or not node.items:
        raise ValueError("the steps are not a list; give a list of SQL texts, or of NAME: SQL")
    steps: list[Step] = []
    for number, item in enumerate(node.items, 1):
        named = isinstance(item, Mapping)
        if isinstance(item, Mapping) and len(item.items) != 1:
            raise ValueError(f"step {number} must be one SQL text, or one NAME: SQL")
        view, body = next(iter(item.items.items())) if isinstance(item, Mapping) else (f"step_{number}", item)
        if named and parse_identifier(view) in ("source", *(s.view for s in steps)):
            raise ValueError(f"step {number} has the name {view}, which exists already; give it another one")
        steps.append(Step(view, text_of(body).rstrip(";"), body.line))
    return tuple(steps)


def parse_expectations(node: Node) -> tuple[Expectation, ...]:
    """Return the expectations by name. Raises ValueError."""
    if not isinstance(node, Mapping) or not node.items:
        raise ValueError("the expectations have no names; give for example {id_present: id IS NOT NULL}")
    return tuple(Expectation(parse_identifier(n), text_of(item), item.line) for n, item in node.items.items())


def parse_options(node: Node) -> dict[str, str]:
    """Return options by name. Raises ValueError."""
    if not isinstance(node, Mapping):
        raise ValueError("the options have no names; give for example {maxOffsetsPerTrigger: 100000}")
    return {name: text_of(item) for name, item in node.items.items()}


FIELDS: Final = (
    Field("pipeline", of_text(parse_name), None, "name of the pipeline. Required"),
    Field("source.bootstrap", of_text(str), None, "brokers to connect to first: HOST:PORT[,HOST:PORT]. Required"),
    Field("source.topics", list_of(parse_topic), None, "topics to read. Set it or `source.pattern`"),
    Field(
        "source.pattern", of_text(lambda t: parse_pattern(t) and t), None,
        "read the topics in whose name this Java regular expression is found",
    ),
    Field(
        "source.start", of_text(parse_one_of("earliest", "latest")), "earliest",
        "where a new pipeline begins: earliest or latest; `klamm pipeline reset --to TIME` says a time",
    ),
    Field(
        "source.value.format", of_text(parse_one_of("raw", "string", "json", "avro")), "raw",
        "format of the values: `raw` (bytes), `string`, `json` or `avro`",
    ),
    Field(
        "source.value.schema", of_text(parse_schema), None,
        "fields of JSON values: `id BIGINT, user STRING`; or the Avro schema, as JSON",
    ),
    Field("source.value.schema_file", of_text(str), None, "file with the schema, in place of `source.value.schema`"),
    Field(
        "source.value.registry", of_text(parse_registry), None,
        "URL of the schema registry of Avro values in Confluent's wire format",
    ),
    Field(
        "source.value.registry_auth", of_text(parse_secret), None,
        "where each worker has `USER:PASSWORD` for the registry: `env:NAME` or `file:PATH`",
    ),
    Field(
        "source.options", parse_options, None,
        "further [options of the source](spark.md#options), for example `maxOffsetsPerTrigger` and `kafka.*`",
    ),
    Field(
        "steps", parse_steps, None,
        "SQL queries in order, as texts or `NAME: SQL`. The first reads `source`; each may read the results of earlier "
        "ones by name (`step_1` and so on without one). The result of the last is written. Default: all columns of "
        "`source`",
    ),
    Field(
        "expect", parse_expectations, None,
        "conditions by name on the rows of `source`, before the steps. A row for which one is not true (false or null) "
        "goes to the dead letters",
    ),
    Field("sink.delta", of_text(str), None, "directory of a Delta table. Set one of `delta`, `parquet`, `topic`"),
    Field("sink.parquet", of_text(str), None, "directory of Parquet files"),
    Field("sink.topic", of_text(parse_topic), None, "topic; it must exist"),
    Field(
        "sink.mode", of_text(parse_one_of("append", "upsert")), "append",
        "`append`; or, for Delta tables, `upsert`: a row replaces the one with the same `sink.keys`, unless that is "
        "newer",
    ),
    Field("sink.keys", list_of(str), None, "columns that identify a row, with `upsert`"),
    Field(
        "sink.order", list_of(str), None,
        "columns that say which of two rows of a key is newer, with `upsert`: the greater one, compared from left to "
        "right",
    ),
    Field(
        "sink.delete", of_text(str), None,
        "BOOLEAN column of the result, with `upsert`: a row in which it is true deletes the row with its keys, unless "
        "that is newer. The table does not have the column",
    ),
    Field("sink.bootstrap", of_text(str), None,
          "brokers of the topic, and of the dead letters; default: those of the source"),
    Field(
        "sink.options", parse_options, None,
        "further [options for writing](spark.md#options-for-writing) to the topic and to the dead letters, for example "
        "`kafka.transaction.timeout.ms` and `kafka.compression.type`",
    ),
    Field(
        "dead_letter.topic", of_text(parse_topic), None,
        "topic for records that cannot be decoded or do not meet an expectation; it must exist. Without it the "
        "pipeline fails at such a record",
    ),
    Field(
        "trigger", of_text(parse_trigger), "5s",
        f"time between the starts of micro-batches, or `{AVAILABLE_NOW}`: read what is there and end",
    ),
    Field(
        "state", of_text(str), None,
        "directory of checkpoint and status; default: `NAME.state` beside the file. One pipeline, one directory",
    ),
)  # fmt: skip


def fields_as_markdown() -> str:
    """The table of fields in Markdown."""
    rows = [f"| `{f.path}` | {'' if f.default is None else f'`{f.default}`'} | {f.meaning} |" for f in FIELDS]
    return "\n".join(["| field | default | meaning |", "|---|---|---|", *rows]) + "\n"
