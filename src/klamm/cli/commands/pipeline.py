"""`klamm pipeline`: pipelines declared in a YAML file."""

from typing import Annotated

import typer
from pyspark.sql import SparkSession

from klamm.cli.options import AsJson, Yes
from klamm.cli.output import confirm, print_json, print_line, print_table
from klamm.cli.times import parse_time
from klamm.pipeline.spec import Spec, load_spec
from klamm.pipeline.state import Start, StateDirectory
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
    from klamm.pipeline.check import check_rows, check_topics
    from klamm.pipeline.sinks import sink_of

    disk = RealDisk()
    spec = load_spec(disk, file)
    check_topics(spec)
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
    """Let the next run begin at a time; rows that the sink has from then on are written again."""
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


def _session(spec: Spec, *, is_verbose: bool) -> SparkSession:
    """Return the Spark session of a pipeline; unless verbose, Spark logs nothing, and klamm prints what failed."""
    from klamm.cli.quiet_spark import quiet_session

    return quiet_session(f"klamm pipeline {spec.name}", is_verbose=is_verbose)


def _summary(spec: Spec, rows: int, dead_letters: int) -> str:
    """Return the last line of a run."""
    return f"The pipeline {spec.name} has read {rows:,} rows; {dead_letters:,} of them are dead letters."
