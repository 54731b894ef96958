"""A pipeline's file: what it declares, and errors that name its line."""

from pathlib import Path

import pytest

from klamm.pipeline.fields import FIELDS
from klamm.pipeline.spec import _OWN_WRITE_OPTIONS, SinkKind, Spec, load_spec, parse_spec
from klamm.pipeline.yaml_tree import BadFile
from klamm.runtime.disk import RealDisk
from klamm.spark.option_set import Reads
from klamm.spark.options import read_options

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "pipelines" / "flights.yaml"
FULL = """pipeline: orders
source:
  bootstrap: b1:9092
  topics: [orders, refunds]
  start: latest
  value:
    format: json
    schema: id BIGINT
  options: {maxOffsetsPerTrigger: 10}
steps:
  - big: SELECT * FROM source WHERE id > 9;
  - SELECT id FROM big
expect:
  id_present: id IS NOT NULL
sink: {delta: tables/orders}
dead_letter:
  topic: orders.dlq
trigger: 1m
state: /var/orders
"""


def parse(text: str) -> Spec:
    return parse_spec(RealDisk(), "/home/me/orders.yaml", text)


def test_a_pipeline_file_declares_source_steps_expectations_sink_and_dead_letters() -> None:
    spec = parse(FULL)

    assert (spec.name, spec.sink, spec.target, spec.state) == (
        "orders", SinkKind.DELTA, "/home/me/tables/orders", "/var/orders",
    )  # fmt: skip
    assert [(s.view, s.sql, s.line) for s in spec.steps] == [
        ("big", "SELECT * FROM source WHERE id > 9", 11),
        ("step_2", "SELECT id FROM big", 12),
    ]
    assert [(e.name, e.condition, e.line) for e in spec.expectations] == [("id_present", "id IS NOT NULL", 14)]
    assert (spec.dead_letter_topic, spec.trigger_s, spec.sink_bootstrap) == ("orders.dlq", 60.0, "b1:9092")
    reads = read_options(spec.source_options, Reads.STREAM)
    assert (reads.subscription.topics, reads.trigger.max_offsets, reads.trigger.max_bytes) == (
        ("orders", "refunds"), 10, None,
    )  # fmt: skip
    assert (reads.read_committed, reads.values.on_error.reports, reads.start.everywhere) == (True, True, -1)


@pytest.mark.parametrize("name", _OWN_WRITE_OPTIONS)
def test_what_a_pipeline_sets_for_its_writes_is_no_sink_option(name: str) -> None:
    assert set(_OWN_WRITE_OPTIONS) == {option.lower() for option in parse(FULL).write_to("out", "id")}

    with pytest.raises(BadFile, match=rf"orders.yaml, line 15: sink.options.{name} is not for here\. Use "):
        parse(FULL.replace("{delta: tables/orders}", f"{{topic: out, options: {{{name}: '1'}}}}"))


def test_a_short_pipeline_file_has_the_documented_defaults() -> None:
    spec = parse("pipeline: p\nsource: {bootstrap: 'b:1', topics: t}\nsink: {parquet: out}\n")

    assert (spec.steps, spec.expectations, spec.dead_letter_topic) == ((), (), None)
    assert (spec.trigger_s, spec.state, spec.target) == (5.0, "/home/me/p.state", "/home/me/out")
    reads = read_options(spec.source_options, Reads.STREAM)
    assert (reads.start.everywhere, reads.trigger.max_bytes, reads.values.format) == (-2, 64 << 20, "raw")


WRONG = {
    "unknown field": (
        "  start: latest",
        "  strat: latest",
        5,
        "source.strat does not exist. Did you mean source.start?",
    ),
    "unknown section": ("state:", "spark: x\nstate:", 19, "the field spark does not exist. Use some of: pipeline, "),
    "given twice": ("trigger: 1m", "trigger: 1m\ntrigger: 2m", 19, "trigger is given twice"),
    "not YAML": ("topic: orders.dlq", "topic: 'orders.dlq", 20, "the file is not YAML: found unexpected end"),
    "bad trigger": (
        "1m",
        "often",
        18,
        "trigger: 'often' is not a duration; give for example 500ms, 5s or 1m, or",
    ),
    "too fast": ("1m", "1ms", 18, "trigger: '1ms' is too short for micro-batches; give at least 100ms"),
    "bad start": ("latest", "noon", 5, "source.start: 'noon' is not allowed; give earliest or latest"),
    "bad topic": ("orders.dlq", "a b", 17, "dead_letter.topic: 'a b' is not a topic name; give 1 to 249"),
    "empty value": ("/var/orders", "", 19, "state: the field is empty"),
    "list where a text is": ("/var/orders", "[a]", 19, "state: the field has a list or a mapping"),
    "section without fields": ("sink: {delta: tables/orders}", "sink: delta", 15, "sink must have fields below it"),
    "two sinks": ("{delta: tables/orders}", "{delta: a, topic: b}", 15, "set exactly one of sink.delta, sink.parquet"),
    "no topics": ("  topics: [orders, refunds]\n", "", 2, "set exactly one of source.topics and source.pattern"),
    "empty list": ("[orders, refunds]", "[]", 4, "source.topics: the list is empty"),
    "no schema": ("    schema: id BIGINT\n", "", 7, "source.value.schema is missing for json"),
    "bad type": (
        "id BIGINT",
        "id BIGNT",
        8,
        "the field id has the type BIGNT, which does not exist; did you mean",
    ),
    "schema without json": ("format: json", "format: string", 8, "valueSchema is only for valueFormat json"),
    "unknown option": ("maxOffsetsPerTrigger", "maxOffsetPerTrigger", 9, "Did you mean maxOffsetsPerTrigger?"),
    "bad option value": ("Trigger: 10", "Trigger: many", 9, "maxoffsetspertrigger"),
    "option with a field": ("maxOffsetsPerTrigger", "Subscribe", 9, "is not for here. Use source.topics"),
    "lost ranges as rows": ("maxOffsetsPerTrigger: 10", "onDataLoss: report", 9, "Set fail or skip"),
    "bad bootstrap": ("b1:9092", "b1", 3, "source.bootstrap: option kafka.bootstrap.servers is not valid: 'b1'"),
    "reads its dead letters": ("orders.dlq", "orders", 4, "the pipeline would read orders, which it writes"),
    "reads its dead letters by a pattern": (
        "topics: [orders, refunds]",
        "pattern: ^orders",
        4,
        "the pipeline would read orders.dlq, which it writes. Name another topic, or exclude it in the pattern",
    ),
    "reads what it assigns and writes": (
        "  topics: [orders, refunds]\n  start: latest\n  value:\n    format: json\n    schema: id BIGINT\n"
        "  options: {maxOffsetsPerTrigger: 10}",
        "  options: {assign: '{\"orders.dlq\": [1]}'}",
        2,
        "the pipeline would read orders.dlq, which it writes",
    ),
    "reads its dead letters from another broker of the cluster": (
        "sink: {delta: tables/orders}\ndead_letter:\n  topic: orders.dlq",
        "sink: {delta: tables/orders, bootstrap: 'b1:9092,b2:9092'}\ndead_letter: {topic: orders}",
        4,
        "the pipeline would read orders, which it writes",
    ),
    "a step named source": ("big: SELECT", "source: SELECT", 10, "step 1 has the name source, which exists already"),
    "steps as a text": (
        "steps:\n  - big: SELECT * FROM source WHERE id > 9;\n  - ",
        "steps: ",
        10,
        "the steps are not a list",
    ),
    "keys of an append": (
        "{delta: tables/orders}",
        "{delta: t, keys: [id]}",
        15,
        "sink.keys is only for sink.mode upsert",
    ),
    "upsert without order": (
        "{delta: tables/orders}",
        "{delta: t, mode: upsert, keys: id}",
        15,
        "needs sink.keys and sink",
    ),
    "upsert of a topic": ("{delta: tables/orders}", "{topic: t, mode: upsert}", 15, "only for Delta tables"),
    "options of a sink that writes to no topic": (
        "sink: {delta: tables/orders}\ndead_letter:\n  topic: orders.dlq",
        "sink:\n  delta: tables/orders\n  options: {kafka.acks: all}",
        17,
        "sink.options is only for writing to a topic, and this pipeline has a delta sink and no dead-letter topic. Re",
    ),
    "an unknown sink option": (
        "{delta: tables/orders}",
        "\n  topic: out\n  options:\n    kafka.acks: all\n    kafka.transaction.timeot.ms: 1",
        19,
        "kafka.transaction.timeot.ms does not exist. Did you mean kafka.transaction.timeout.ms?",
    ),
    "a bad value of a sink option": (
        "{delta: tables/orders}",
        "\n  delta: tables/orders\n  options:\n    Kafka.Transaction.Timeout.ms: soon\n    kafka.acks: all",
        18,
        "sink.options: option kafka.transaction.timeout.ms is not valid: 'soon'",
    ),
    "a sink option that contradicts transactions": (
        "{delta: tables/orders}",
        "{topic: out, options: {kafka.acks: 1}}",
        15,
        "sink.options: option delivery=exactly-once needs kafka.acks=all",
    ),
    "a sink option for reading": (
        "{delta: tables/orders}",
        "{topic: out, options: {kafka.transactional.id: x}}",
        15,
        "kafka.transactional.id must not be set, because the sink makes the transactional ids",
    ),
    "a sink option that has a field": (
        "{delta: tables/orders}",
        "{topic: out, options: {Topic: other}}",
        15,
        "sink.options.Topic is not for here. Use sink.topic or dead_letter.topic instead.",
    ),
    "a sink option that the pipeline sets": (
        "{delta: tables/orders}",
        "{topic: out, options: {\n  writeBatch: 7}}",
        16,
        "sink.options.writeBatch is not for here. Use nothing: the pipeline numbers its writes.",
    ),
    "no conditions": (
        "expect:\n  id_present: id IS NOT NULL",
        "expect: id",
        13,
        "the expectations have no names",
    ),
}


@pytest.mark.parametrize(("old", "new", "line", "expected"), WRONG.values(), ids=WRONG)
def test_an_error_in_a_pipeline_file_names_the_line_the_field_and_the_remedy(
    old: str, new: str, line: int, expected: str
) -> None:
    assert old in FULL

    with pytest.raises(BadFile) as caught:
        parse(FULL.replace(old, new, 1))

    assert str(caught.value).startswith(f"orders.yaml, line {line}: ")
    assert expected.lower() in str(caught.value).lower()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "the file is empty. Begin with `pipeline: NAME`"),
        ("- a", "the file is not a mapping of fields"),
        ("pipeline: &a [1, *a]", ": a value contains itself, or is nested too deeply. Remove the alias"),
        (
            "pipeline: p\nsource: {bootstrap: 'b:1', topics: t, options: {maxOffsetPerTrigger: 5}}\nsink: {delta: t}",
            "option maxoffsetpertrigger does not exist. Did you mean maxOffsetsPerTrigger?",
        ),
        ("source: {bootstrap: 'b:1', topics: t}\nsink: {parquet: o}", "the field pipeline is missing"),
        ("pipeline: p\nsource: {topics: t}\nsink: {parquet: o}", "the field source.bootstrap is missing"),
    ],
)
def test_a_pipeline_file_without_its_required_fields_is_refused(text: str, expected: str) -> None:
    with pytest.raises(BadFile, match=expected):
        parse(text)


def test_a_pipeline_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"pipeline: \xff")

    with pytest.raises(BadFile, match=r"Cannot read .*none\.yaml: No such file or directory"):
        load_spec(RealDisk(), str(tmp_path / "none.yaml"))
    with pytest.raises(BadFile, match="is not UTF-8"):
        load_spec(RealDisk(), str(binary))


def test_a_schema_file_beside_the_pipeline_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(FULL.replace("schema: id BIGINT", "schema_file: orders.ddl"))
    with pytest.raises(BadFile, match=r"line 8: source.value.schema_file='orders.ddl'.* cannot .*: No such file"):
        load_spec(RealDisk(), str(file))
    (tmp_path / "orders.ddl").write_text("id BIGINT")

    assert load_spec(RealDisk(), str(file)).reads.values.schema == "id BIGINT"


def test_a_secret_in_a_pipeline_file_is_refused_and_not_repeated() -> None:
    avro = FULL.replace("format: json", "format: avro\n    registry: http://r:1\n    registry_auth: me:canary")

    with pytest.raises(BadFile, match=r"line 9: source.value.registry_auth: a secret is not written here") as caught:
        parse(avro)

    assert "canary" not in str(caught.value)


def test_the_documented_example_is_a_correct_pipeline_file() -> None:
    spec = load_spec(RealDisk(), str(EXAMPLE))

    assert (spec.name, spec.target) == ("flights", str(EXAMPLE.parent / "flights.table"))
    assert {f.path for f in FIELDS} >= {
        path for path in spec.lines if path not in ("source", "sink", "dead_letter", "source.value")
    }
