"""`klamm transactions list|describe|describe-producers|find-hanging|abort`, with the flags of kafka-transactions."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from klamm.cli.admin import hanging_transactions, transactions
from klamm.cli.admin.client import Admin, with_admin
from klamm.cli.admin.hanging_transactions import PartitionProducer
from klamm.cli.admin.refusals import Refusal, print_refusals
from klamm.cli.admin.transactions import Transaction
from klamm.cli.options import LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout, Yes
from klamm.cli.output import confirm, print_error, print_json, print_line, print_table
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.world import real_world
from klamm.wire.messages import ProducerState

transactions_app = typer.Typer(help="List, describe and abort transactions.", no_args_is_help=True)
BrokerOption = Annotated[int | None, typer.Option("--broker-id", min=0, help="ask this replica, not the leader")]
_PRODUCER_COLUMNS = (
    "producer id", "epoch", "coordinator epoch", "last sequence", "last timestamp", "transaction start offset"
)  # fmt: skip
_HANGING_COLUMNS = (
    "topic", "partition", "producer id", "epoch", "coordinator epoch", "start offset", "last timestamp", "minutes"
)  # fmt: skip
_COLUMNS = ("transactional id", "coordinator", "producer id", "state")


@transactions_app.command("list")
def list_(
    bootstrap: Bootstrap = LOCAL,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="only transactions in this state: Ongoing, Empty, ...; repeatable"),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option("--producer-id", help="only transactions of this producer; repeatable")
    ] = None,
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
    elif not refused:
        print_error("No transactional id was found.")
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


@transactions_app.command("describe-producers")
def describe_producers(
    topic: Annotated[str, typer.Option("--topic", help="topic of the partition")],
    partition: Annotated[int, typer.Option("--partition", min=0, help="number of the partition")],
    broker_id: BrokerOption = None,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show the idempotent producers of a partition, as its leader or another replica knows them."""
    where, broker = TopicPartition(topic, partition), None if broker_id is None else BrokerId(broker_id)
    found, refused = with_admin(
        bootstrap, timeout, lambda admin: hanging_transactions.describe_producers(admin, [where], broker)
    )
    if as_json:
        print_json([_producer_data(producer) for producer in found])
    elif found:
        rows = [
            (p.producer_id, p.epoch, p.coordinator_epoch, p.last_sequence, p.last_timestamp_ms, _open_from(p))
            for p in found
        ]
        print_table(_PRODUCER_COLUMNS, rows)
    elif not refused:
        print_error(f"{where} has no active producers.")
    raise typer.Exit(print_refusals(refused))


@transactions_app.command("find-hanging")
def find_hanging(
    bootstrap: Bootstrap = LOCAL,
    broker_id: BrokerOption = None,
    topic: Annotated[str | None, typer.Option("--topic", help="search only this topic")] = None,
    partition: Annotated[int | None, typer.Option("--partition", min=0, help="search only this partition")] = None,
    max_transaction_timeout: Annotated[
        int, typer.Option("--max-transaction-timeout", min=0, help="minutes; younger transactions are left out")
    ] = 15,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Find transactions that are open in partitions and unknown to coordinators; exit status 1 if there are any."""
    if topic is None and broker_id is None:
        raise UsageError("Choose where to search: give --topic or --broker-id.")
    if partition is not None and topic is None:
        raise UsageError("--partition needs --topic.")
    broker = None if broker_id is None else BrokerId(broker_id)
    now_ms = real_world().clock.now_ms()

    async def search(admin: Admin) -> tuple[list[PartitionProducer], list[Refusal]]:
        """Search the chosen partitions."""
        partitions = await hanging_transactions.partitions_to_search(admin, topic, partition, broker)
        before_ms = now_ms - max_transaction_timeout * 60_000
        return await hanging_transactions.find_hanging(admin, partitions, broker, before_ms)

    found, refused = with_admin(bootstrap, timeout, search)
    if as_json:
        print_json([_producer_data(producer) for producer in found])
    elif found:
        print_table(_HANGING_COLUMNS, [_hanging_row(p, now_ms) for p in found])
        (name, number), start = found[0].partition, _open_from(found[0])
        print_error(
            "Such a transaction keeps read_committed consumers waiting. Abort it: klamm transactions abort --topic "
            f"{name} --partition {number} --start-offset {start}"
        )
    elif not refused:
        print_error("No hanging transaction was found.")
    raise typer.Exit(print_refusals(refused) or int(bool(found)))


def _hanging_row(found: PartitionProducer, now_ms: int) -> tuple[object, ...]:
    """A row of the table of hanging transactions."""
    minutes = (now_ms - found.last_timestamp_ms) // 60_000
    place = found.partition.topic, found.partition.partition, found.producer_id, found.epoch, found.coordinator_epoch
    return (*place, _open_from(found), found.last_timestamp_ms, minutes)


def _open_from(producer: PartitionProducer) -> object:
    """The first offset of the open transaction as Kafka's tool shows it."""
    return "None" if producer.start_offset is None else producer.start_offset


def _producer_data(producer: PartitionProducer) -> dict[str, object]:
    """Return the hanging transaction, and its producer, for `--json`."""
    topic, partition = producer.partition
    return {**producer._asdict(), "topic": topic, "partition": partition}


@transactions_app.command()
def abort(
    topic: Annotated[str, typer.Option("--topic", help="topic of the partition")],
    partition: Annotated[int, typer.Option("--partition", min=0, help="number of the partition")],
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, help="first offset of the transaction, as find-hanging shows")
    ] = None,
    producer_id: Annotated[int | None, typer.Option("--producer-id", min=0, help="instead of --start-offset")] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", min=0, max=32_767, help="needed with --producer-id")
    ] = None,
    coordinator_epoch: Annotated[
        int | None, typer.Option("--coordinator-epoch", min=-1, help="needed with --producer-id")
    ] = None,
    bootstrap: Bootstrap = LOCAL,
    yes: Yes = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Abort, in one partition, a transaction that neither its producer nor its coordinator ends.

    The transaction's records in this partition are dropped.
    """
    where = TopicPartition(topic, partition)
    by_producer = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == (by_producer == (None, None, None)):
        raise UsageError("Name the transaction: give either --start-offset, or --producer-id with both epochs.")
    what = f"the transaction that is open from offset {start_offset} of {where}"
    if producer_id is None or producer_epoch is None or coordinator_epoch is None:
        if start_offset is None:
            raise UsageError("--producer-id, --producer-epoch and --coordinator-epoch are needed together.")
        confirm(f"This drops the records of {what}.", yes)
        work = lambda admin: transactions.abort_transaction(admin, where, start_offset)  # noqa: E731
    else:
        what = f"the open transaction of producer {producer_id}, epoch {producer_epoch}, in {where}"
        confirm(f"This drops the records of {what}.", yes)
        state = ProducerState(producer_id, producer_epoch, coordinator_epoch=coordinator_epoch)
        work = lambda admin: transactions.abort_producer(admin, where, state)  # noqa: E731
    refused = with_admin(bootstrap, timeout, work)
    if refused is None:
        print_line(f"Aborted {what}.")
    raise typer.Exit(print_refusals([refused] if refused else []))
