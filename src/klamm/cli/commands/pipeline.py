"""`klamm pipeline`: pipelines declared in a YAML file."""

from posixpath import abspath
from typing import Annotated

import typer
from pyspark.sql import SparkSession

from klamm.cli.options import AsJson, Yes
from klamm.cli.output import confirm, print_json, print_line, print_table
from klamm.cli.times import parse_duration, parse_time
from klamm.model.errors import UsageError
from klamm.pipeline.spec import Spec, load_spec
from klamm.pipeline.state import REPLAY, Start, StateDirectory
from klamm.runtime.disk import RealDisk
from klamm.runtime.signals import interrupted_by_stop_signals

pipeline_app = typer.Typer(help="Check and run pipelines that a YAML file declares.", no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="the pipeline's YAML file")]
AvailableNow = Annotated[
    bool, typer.Option("--available-now", help="read what is there and end, whatever the file's trigger is")
]

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="print Spark's own log, too")]


@pipeline_app.command()
def check(file: File, verbose: Verbose = False) -> None:
    """Check the file, its topics and its SQL; print the columns of the result."""
    from klamm.pipeline.check import CHECK_S, check_rows, check_topics
    from klamm.pipeline.sinks import sink_of

    disk = RealDisk()
    spec = load_spec(disk, file)
    check_topics(spec, CHECK_S)
    schema = check_rows(_session(spec, is_verbose=verbose), spec, sink_of(spec, disk))
    print_line(f"The pipeline {spec.name} is correct. It writes to the {spec.sink} {spec.target}:")
    for field in schema.fields:
        print_line(f"  {field.name} {field.dataType.simpleString()}")


@pipeline_app.command()
def run(file: File, available_now: AvailableNow = False, verbose: Verbose = False) -> None:
    """Run the pipeline until Ctrl-C, or until everything is read; print a line for each micro-batch."""
    from klamm.pipeline.run import PipelineRun
    from klamm.pipeline.text import batch_line

    disk = RealDisk()
    spec = load_spec(disk, file)
    if available_now:
        spec = spec._replace(trigger_s=None)
    spark = _session(spec, is_verbose=verbose)
    with interrupted_by_stop_signals():
        status = PipelineRun(spark, spec, disk).run(lambda batch: print_line(batch_line(batch)))
    print_line(_summary(spec, status.rows, status.dead_letters))


@pipeline_app.command()
def status(file: File, as_json: AsJson = False) -> None:
    """Show whether the pipeline runs, its last micro-batch and error, and its position and lag in each partition."""
    from klamm.pipeline.position import positions, read_checkpoint
    from klamm.pipeline.text import status_lines

    disk = RealDisk()
    spec = load_spec(disk, file)
    state = StateDirectory(disk, spec.state)
    checkpoint = read_checkpoint(disk, state)
    found = positions(spec, checkpoint)
    if as_json:
        rows = [{"partition": str(p), **position._asdict(), "lag": position.lag} for p, position in found.items()]
        print_json({"running": state.is_running(), "status": state.status(), "partitions": rows})
        return
    for line in status_lines(spec, state.status(), checkpoint, is_running=state.is_running()):
        print_line(line)
    print_table(
        ("partition", "next offset", "log end", "lag"),
        [(p, position.next_offset, position.end, position.lag) for p, position in found.items()],
    )


@pipeline_app.command()
def reset(
    file: File,
    to: Annotated[str, typer.Option("--to", help="time of the first record to read, for example 2026-01-31T08:00Z")],
    yes: Yes = False,
) -> None:
    """Let the next run begin at this time; records from then on are written again, also those that the sink has."""
    disk = RealDisk()
    spec = load_spec(disk, file)
    timestamp_ms = parse_time("--to", to)
    state = StateDirectory(disk, spec.state)
    with state.locked():
        confirm(
            f"The next run of the pipeline {spec.name} begins at {to}. Rows of later records that the {spec.sink} "
            f"{spec.target} has already will be written a second time; so will dead letters.",
            yes,
        )
        state.reset(Start(timestamp_ms))
    print_line(f"The next run of the pipeline {spec.name} begins at {to}.")


@pipeline_app.command("replay-dead-letters")
def replay_dead_letters(file: File, verbose: Verbose = False) -> None:
    """Read the dead letters again, for example with a corrected file, and delete them from their topic.

    Those that are still refused are written to the topic again. The pipeline must not run meanwhile.
    """
    from klamm.pipeline.position import read_checkpoint
    from klamm.pipeline.replay import delete_replayed
    from klamm.pipeline.run import PipelineRun
    from klamm.pipeline.text import batch_line

    disk = RealDisk()
    spec = load_spec(disk, file)
    if spec.dead_letter_topic is None:
        raise UsageError(f"{spec.file} has no field dead_letter.topic, so there are no dead letters to read again.")
    replay = PipelineRun(_session(spec, is_verbose=verbose), spec, disk, replays=True)
    with interrupted_by_stop_signals():
        status = replay.run(lambda batch: print_line(batch_line(batch)))
    delete_replayed(spec, read_checkpoint(disk, StateDirectory(disk, spec.state, REPLAY)).next)
    print_line(
        f"{status.rows:,} dead letters of the pipeline {spec.name} were read again. {status.dead_letters:,} of them "
        "are dead letters still."
    )


@pipeline_app.command()
def export(
    file: File,
    to: Annotated[str, typer.Option("--to", help="new directory for the files")],
    verbose: Verbose = False,
) -> None:
    """Write all records of the pipeline's topics, decoded, to Parquet files; the pipeline may run meanwhile.

    Steps and expectations are not applied. manifest.json names the files, and the offsets that each of them has.
    """
    from klamm.pipeline.export import MANIFEST, export_pipeline

    spec = load_spec(RealDisk(), file)
    written = export_pipeline(_session(spec, is_verbose=verbose), spec, RealDisk(), abspath(to))
    print_line(
        f"Exported {written.rows:,} records of the pipeline {spec.name} to {to}: {len(written.files)} files, "
        f"{written.bytes:,} bytes. Their offsets are in {MANIFEST}."
    )


@pipeline_app.command()
def compact(
    file: File,
    keep: Annotated[str, typer.Option("--keep", help="how long older versions of the table stay readable")] = "7d",
) -> None:
    """Combine the small files of the pipeline's Delta table, and remove files that no kept version needs."""
    from klamm.pipeline.sinks import compact_table

    spec = load_spec(RealDisk(), file)
    done = compact_table(spec, parse_duration("--keep", keep))
    print_line(
        f"The table {spec.target}: {done.combined} files were combined into {done.added}, {done.removed} files removed."
    )


def _session(spec: Spec, *, is_verbose: bool) -> SparkSession:
    """Return the Spark session of a pipeline; unless verbose, Spark logs nothing, and klamm prints what failed."""
    from klamm.cli.quiet_spark import quiet_session

    return quiet_session(f"klamm pipeline {spec.name}", is_verbose=is_verbose)


def _summary(spec: Spec, rows: int, dead_letters: int) -> str:
    """Return the last line of a run."""
    return f"The pipeline {spec.name} has read {rows:,} rows; {dead_letters:,} of them are dead letters."
