"""`klamm transactions list|describe|abort`, with the flags of kafka-transactions."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from klamm.cli.admin import transactions
from klamm.cli.admin.client import Admin, with_admin
from klamm.cli.admin.refusals import print_refusals
from klamm.cli.admin.transactions import Transaction
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout, Yes
from klamm.cli.output import confirm, print_json, print_line, print_table
from klamm.model.ids import TopicPartition

transactions_app = typer.Typer(help="List, describe and abort transactions.", no_args_is_help=True)
_COLUMNS = ("transactional id", "coordinator", "producer id", "state")


@transactions_app.command("list")
def list_(
    bootstrap: Bootstrap = LOCAL,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="only transactions in this state: Ongoing, Empty, ...; repeatable"),
    ] = None,
    producer_id: Annotated[list[int] | None, typer.Option("--producer-id", help="repeatable")] = None,
    duration_filter: Annotated[
        int,
        typer.Option("--duration-filter", help="only transactions that have been open for longer than this many ms"),
    ] = -1,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """List transactional ids with their states and coordinators."""
    found, refused = with_admin(
        bootstrap,
        timeout,
        lambda admin: transactions.list_transactions(admin, state or [], producer_id or [], duration_filter),
    )
    if as_json:
        print_json([transaction._asdict() for transaction in found])
    elif found:
        print_table(_COLUMNS, found)
    raise typer.Exit(print_refusals(refused))


@transactions_app.command()
def describe(
    transactional_id: Annotated[list[str], typer.Option("--transactional-id", help="repeatable")],
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show state, producer and partitions of transactional ids."""

    async def read(admin: Admin) -> list[Transaction]:
        """Return the transaction of each named transactional id."""
        return [await transactions.describe_transaction(admin, name) for name in transactional_id]

    found = with_admin(bootstrap, timeout, read)
    if as_json:
        print_json([{**t._asdict(), "partitions": list(map(str, t.partitions))} for t in found])
        return
    for transaction in found:
        print_line(_headline(transaction))
        if transaction.partitions:
            print_line(f"  partitions: {', '.join(map(str, transaction.partitions))}")


def _headline(transaction: Transaction) -> str:
    """Return the first line about a transaction."""
    began = ""
    if transaction.start_ms is not None:
        began = f", begun {datetime.fromtimestamp(transaction.start_ms / 1000, UTC).isoformat(timespec='seconds')}"
    return (
        f"{transaction.transactional_id}: {transaction.state}, producer id {transaction.producer_id}, epoch "
        f"{transaction.epoch}, timeout {transaction.timeout_ms} ms{began}"
    )


@transactions_app.command()
def abort(
    topic: Annotated[str, typer.Option("--topic")],
    partition: Annotated[int, typer.Option("--partition", min=0)],
    start_offset: Annotated[
        int, typer.Option("--start-offset", min=0, help="first offset of the transaction, as klamm audit names it")
    ],
    bootstrap: Bootstrap = LOCAL,
    yes: Yes = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Abort a transaction that nobody ends, in one partition: its records there are dropped."""
    where = TopicPartition(topic, partition)
    confirm(f"This drops the records of the transaction that is open from offset {start_offset} of {where}.", yes)
    refused = with_admin(bootstrap, timeout, lambda admin: transactions.abort_transaction(admin, where, start_offset))
    if refused is None:
        print_line(f"The transaction from offset {start_offset} of {where} is aborted.")
    raise typer.Exit(print_refusals([refused] if refused else []))
