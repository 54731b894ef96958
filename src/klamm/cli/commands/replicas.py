"""`klamm replicas verify`: whether all replicas have the same records. Exit status 1 if one differs or is not read."""

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from klamm.audit.replicas.partitions import PartitionReplicas, fetched_partitions, stored_partitions
from klamm.audit.replicas.verification import Verified, verify_partition
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout
from klamm.cli.output import print_json, print_line
from klamm.client.asynchronous import MAX_CONNECT_TIMEOUT_S
from klamm.client.blocking import BlockingClient, BlockingSettings
from klamm.model.cluster import parse_addresses
from klamm.model.errors import UsageError
from klamm.runtime.blocking import RealBlockingWorld
from klamm.runtime.disk import RealDisk

_MAX_NAMED = 5
"""Partitions that one line names."""
replicas_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@replicas_app.callback()
def _replicas() -> None:
    """Compare the replicas of partitions."""


@replicas_app.command("verify")
def verify(
    bootstrap: Bootstrap = LOCAL,
    log_dirs: Annotated[
        str | None, typer.Option("--log-dirs", help="read these log directories instead of asking brokers: PATH[,PATH]")
    ] = None,
    topics: Annotated[list[str] | None, typer.Option("--topic", help="only this topic; repeatable")] = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Compare the records of all replicas, up to the high watermark that all of them have.

    Verifies every checksum; compares batches, in compacted topics the last record of each key. Changes nothing. Exit
    status 1: replicas differ, or some could not be read.
    """
    results = []
    for found in _partitions(bootstrap, log_dirs, topics or [], timeout):
        result = verify_partition(found.partition, found.replicas)
        result = result._replace(unavailable=(*found.missing, *result.unavailable))
        results.append(result)
        if not as_json:
            _print_problems(result)
    if as_json:
        print_json([_as_data(r) for r in results])
    else:
        _print_unavailable(results)
        _print_summary(results)
    raise typer.Exit(int(any(r.divergences or r.unavailable for r in results)))


def _partitions(
    bootstrap: str, log_dirs: str | None, topics: list[str], timeout_s: float
) -> Iterator[PartitionReplicas]:
    """The partitions to verify, from log directories or from brokers."""
    if log_dirs is not None:
        yield from stored_partitions(RealDisk(), [path.strip() for path in log_dirs.split(",")], topics)
        return
    try:
        addresses = parse_addresses(bootstrap)
    except ValueError as error:
        raise UsageError(f"--bootstrap-server {bootstrap!r}: {error}") from error
    settings = BlockingSettings("klamm-cli", min(timeout_s, MAX_CONNECT_TIMEOUT_S), timeout_s)
    with BlockingClient(RealBlockingWorld(), addresses, settings) as client:
        yield from fetched_partitions(client, topics, timeout_s)


def _print_problems(result: Verified) -> None:
    """Print what is wrong with a partition."""
    for divergence in result.divergences:
        print_line(f"{divergence.partition}, offset {divergence.offset}, {', '.join(divergence.replicas)}:")
        print_line(f"    {divergence.problem}")
        print_line(f"    {divergence.remedy}")


def _print_unavailable(results: list[Verified]) -> None:
    """Print which replicas were not read, with the partitions for each reason: a broker has many."""
    partitions: dict[str, list[str]] = {}
    for result in results:
        for line in result.unavailable:
            partitions.setdefault(line, []).append(str(result.partition))
    for line, names in partitions.items():
        more = f" and {len(names) - _MAX_NAMED:,} more" if len(names) > _MAX_NAMED else ""
        print_line(f"{line}{'' if line.endswith('.') else '.'} Not compared: {', '.join(names[:_MAX_NAMED])}{more}.")


def _print_summary(results: list[Verified]) -> None:
    """Print how many partitions and offsets were compared."""
    differing = sum(bool(r.divergences) for r in results)
    offsets = sum(r.end - r.start for r in results)
    verdict = f"{differing:,} of them differ between replicas" if differing else "all replicas that were read are equal"
    print_line(f"{len(results):,} partitions with {offsets:,} offsets compared: {verdict}.")


def _as_data(result: Verified) -> dict[str, Any]:
    """The result for one partition as `--json` prints it."""
    return {
        "partition": str(result.partition),
        "start": result.start,
        "end": result.end,
        "divergences": [{**d._asdict(), "partition": str(d.partition)} for d in result.divergences],
        "unavailable": list(result.unavailable),
    }
