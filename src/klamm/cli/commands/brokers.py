"""`klamm brokers`."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from klamm.cli.admin.brokers import BrokerFacts, format_bytes, read_brokers
from klamm.cli.admin.client import with_admin
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout
from klamm.cli.output import print_json, print_line, print_table

_COLUMNS = (
    "broker", "controller", "address", "rack", "leaders", "preferred", "replicas", "out of sync", "size", "problem",
)  # fmt: skip
_DIRECTORY_COLUMNS = ("broker", "log directory", "replicas", "size", "free", "volume", "problem")


def brokers(
    bootstrap: Bootstrap = LOCAL,
    log_dirs: Annotated[bool, typer.Option("--log-dirs", help="also show each log directory")] = False,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show the brokers: racks, leaders, replicas, disks. Exit status 1: a broker has a problem."""
    found = with_admin(bootstrap, timeout, read_brokers)
    if as_json:
        print_json([_as_data(b) for b in found])
    else:
        print_table(_COLUMNS, [_broker_row(b) for b in found])
        if log_dirs:
            print_line()
            print_table(_DIRECTORY_COLUMNS, [row for b in found for row in _directory_rows(b)])
    raise typer.Exit(int(any(b.problem for b in found)))


def _broker_row(b: BrokerFacts) -> Sequence[object]:
    """Return the broker's row of the table."""
    size = format_bytes(sum(d.bytes for d in b.directories)) if b.directories else ""
    mark = " ".join(word for word, holds in (("*", b.is_controller), ("only", b.is_controller_only)) if holds)
    return (b.id, mark, b.address, b.rack, b.leads, b.preferred_by, b.holds, b.out_of_sync, size, b.problem)


def _directory_rows(b: BrokerFacts) -> list[Sequence[object]]:
    """Return a table row for each log directory of the broker."""
    return [
        (
            b.id,
            d.path,
            d.replicas,
            format_bytes(d.bytes),
            format_bytes(d.usable_bytes),
            format_bytes(d.total_bytes),
            d.error,
        )
        for d in b.directories
    ]


def _as_data(b: BrokerFacts) -> dict[str, Any]:
    """One broker for `--json`."""
    return {
        **b._asdict(),
        "address": str(b.address) if b.address else None,
        "directories": [d._asdict() for d in b.directories],
    }
