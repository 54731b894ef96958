"""Restart the brokers of a cluster one after the other, and stop when anything is not in sync or fails.

A command of the operator restarts each broker; this module decides when it may run, and whether it did what it should.
It works with klamm's and with Apache Kafka's brokers.
"""

import asyncio
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from klamm.cli.admin.client import Admin, CannotAsk, with_admin
from klamm.cli.admin.cluster import read_cluster
from klamm.cli.admin.shutdown_verdict import read_shutdown_verdict
from klamm.controller.decisions.shutdown_verdict import Verdict
from klamm.model.cluster import Address, Cluster
from klamm.model.errors import KlammError, UsageError
from klamm.model.ids import BrokerId, TopicPartition
from klamm.runtime.blocking import BlockingConnection, RealBlockingWorld
from klamm.runtime.processes import run, ticks

_LOOK_S: Final = 0.2
_ASK_TIMEOUT_S: Final = 10.0
_MAX_NAMED: Final = 3
RENEWED_AFTER: Final = 50
"""Looks at a connection before another one takes its place, about 10 s: brokers close those that are idle for long."""


class RestartStopped(KlammError):
    """Why no further broker is restarted, as a sentence that names the broker."""


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """What to restart, and how."""

    bootstrap: str
    command: str
    """Restarts one broker; `{id}`, `{host}` and `{port}` stand for it. It may return before the broker is back."""
    brokers: Sequence[BrokerId] | None
    """The brokers to restart; None for all."""
    timeout_s: float
    """For each of: the command, the end of the old process, and the return of the broker to all ISRs."""


def restart_order(cluster: Cluster, wanted: Sequence[BrokerId] | None) -> list[BrokerId]:
    """Return the brokers in the order of their restart: ascending, the controller last, so that it moves once.

    Raises UsageError for a broker that is not alive.
    """
    for broker in wanted or ():
        if broker not in cluster.brokers:
            alive = ", ".join(map(str, sorted(cluster.brokers)))
            raise UsageError(f"--brokers: broker {broker} is not alive. Live brokers: {alive}.")
    chosen = set(cluster.brokers if wanted is None else wanted)
    return sorted(chosen, key=lambda broker: (broker == cluster.controller, broker))


def command_words(template: str, broker: BrokerId, address: Address) -> list[str]:
    """Return the words of the command for one broker. Raises UsageError where the template is malformed."""
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise UsageError(f"--command {template!r}: {error}. Quote it like a shell command.") from None
    if not words:
        raise UsageError(
            "--command is empty. Give the command that restarts a broker, for example 'systemctl restart klamm@{id}'."
        )
    values = {"{id}": str(broker), "{host}": address.host, "{port}": str(address.port)}
    for placeholder, value in values.items():
        words = [word.replace(placeholder, value) for word in words]
    return words


def why_not_whole(cluster: Cluster, expected: Iterable[BrokerId]) -> str | None:
    """Return why the cluster is not complete and in sync, in a few words; None if it is."""
    if missing := sorted(set(expected) - set(cluster.brokers)):
        return f"broker {', '.join(map(str, missing))} is not alive"
    if cluster.controller not in cluster.brokers:
        return "there is no controller"
    behind = [
        f"{TopicPartition(topic.name, number)} (replicas {_ids(p.replicas)}, in sync {_ids(p.isr)}, leader {p.leader})"
        for topic in cluster.topics.values()
        for number, p in topic.partitions.items()
        if p.leader < 0 or len(p.isr) < len(p.replicas)
    ]
    if not behind:
        return None
    more = f" and {len(behind) - _MAX_NAMED} more" if len(behind) > _MAX_NAMED else ""
    return f"not in sync: {'; '.join(behind[:_MAX_NAMED])}{more}"


def restart_all(plan: RollingRestart, say: Callable[[str], None]) -> list[BrokerId]:
    """Restart the brokers of the plan, and return them in order; `say` gets a line for each step.

    Raises RestartStopped when a restart fails or would put partitions at risk, UsageError for a wrong plan, CannotAsk
    where the cluster does not answer.
    """
    cluster = with_admin(plan.bootstrap, _ASK_TIMEOUT_S, read_cluster)
    order = restart_order(cluster, plan.brokers)
    addresses = {broker: found.address for broker, found in cluster.brokers.items()}
    commands = {broker: command_words(plan.command, broker, addresses[broker]) for broker in order}
    done: list[BrokerId] = []
    try:
        for broker in order:
            others = [a for b, a in addresses.items() if b != broker] or [addresses[broker]]
            _check_before(others, broker, addresses)
            say(f"Broker {broker}: {shlex.join(commands[broker])}")
            _restart(broker, addresses[broker], commands[broker], plan.timeout_s)
            _wait_until_whole(broker, addresses, plan.timeout_s)
            done.append(broker)
            say(f"Broker {broker} is back and in sync. {len(done)} of {len(order)} restarted.")
    except (RestartStopped, CannotAsk) as error:
        left = [b for b in order if b not in done]
        raise RestartStopped(
            f"{error}. Restarted: {_ids(done) or 'none'}; not restarted or in doubt: {_ids(left)}. When the cluster is "
            f"healthy, continue with --brokers {','.join(map(str, left))}."
        ) from error
    return done


def _check_before(others: Sequence[Address], broker: BrokerId, addresses: dict[BrokerId, Address]) -> None:
    """Raise RestartStopped if the cluster is not whole, or the restart would put partitions at risk."""
    if (why := _ask_all(addresses)) is not None:
        raise RestartStopped(f"Broker {broker} is not restarted, because {why}")
    bootstrap = ",".join(map(str, others))
    verdict = with_admin(bootstrap, _ASK_TIMEOUT_S, lambda admin: read_shutdown_verdict(admin, broker))
    if not verdict.is_safe:
        raise RestartStopped(f"Broker {broker} is not restarted, because {_risks(verdict)}")


def _restart(broker: BrokerId, address: Address, command: Sequence[str], timeout_s: float) -> None:
    """Run the command, and wait for the end of the old process: it closes a connection opened before.

    Raises RestartStopped where the command fails, or the broker does not restart.
    """

    def connect() -> BlockingConnection:
        """Open a connection to the broker. Raises OSError."""
        return RealBlockingWorld().connect(address.host, address.port, _ASK_TIMEOUT_S, _ASK_TIMEOUT_S)

    try:
        connection = connect()
    except OSError as error:
        raise RestartStopped(
            f"Broker {broker} is not restarted, because it refuses connections at {address} ({error}). Start it"
        ) from None
    try:
        _run_command(broker, command, timeout_s)
    except RestartStopped:
        connection.close()
        raise
    if not process_ends(connection, connect, ticks(timeout_s, _LOOK_S)):
        raise RestartStopped(
            f"Broker {broker} did not restart within {timeout_s:g} s: its process still has the connections from "
            "before. Check that the command restarts this broker"
        )


def process_ends(
    connection: BlockingConnection, connect: Callable[[], BlockingConnection], looks: Iterable[None]
) -> bool:
    """Whether the process at the other end closes the connection before the looks are over; closes it at the end.

    New connections take its place meanwhile: a broker also closes one that is idle for long.
    """
    try:
        for number, _ in enumerate(looks, start=1):
            if not connection.is_quiet():
                return True
            if number % RENEWED_AFTER == 0:
                connection = _renewed(connection, connect)
        return False
    finally:
        connection.close()


def _renewed(connection: BlockingConnection, connect: Callable[[], BlockingConnection]) -> BlockingConnection:
    """A new connection to the process that has this one open; this one where there is none."""
    try:
        fresh = connect()
    except OSError:
        return connection
    if not connection.is_quiet():  # the new one may be to the next process
        fresh.close()
        return connection
    connection.close()
    return fresh


def _run_command(broker: BrokerId, command: Sequence[str], timeout_s: float) -> None:
    """Run the operator's command to its end. Raises RestartStopped where it fails or takes too long."""
    try:
        status, output = run(command, timeout_s)
    except (OSError, TimeoutError) as error:
        raise RestartStopped(f"The command for broker {broker} failed: {error}") from None
    if status:
        last = output.strip().splitlines()[-1:] or ["no output"]
        raise RestartStopped(f"The command for broker {broker} ended with status {status}: {last[0]}")


def _wait_until_whole(broker: BrokerId, addresses: dict[BrokerId, Address], timeout_s: float) -> None:
    """Wait until every broker knows all brokers and all partitions are in sync. Raises RestartStopped."""
    why: str | None = "it did not answer"
    for _ in ticks(timeout_s, _LOOK_S):
        why = _ask_all(addresses)
        if why is None:
            return
    raise RestartStopped(f"Broker {broker} was restarted, but after {timeout_s:g} s {why}")


def _ask_all(addresses: dict[BrokerId, Address]) -> str | None:
    """Return why the cluster is not complete and in sync, as any broker reports it; None if it is."""

    async def ask(admin: Admin) -> str | None:
        """Ask each broker for its metadata."""
        asked = [read_cluster(admin, of=broker) for broker in sorted(addresses)]
        for broker, found in zip(sorted(addresses), await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(found, CannotAsk):
                return f"broker {broker} does not answer ({found})"
            if isinstance(found, BaseException):
                raise found
            if (why := why_not_whole(found, addresses)) is not None:
                return f"{why}, as broker {broker} reports"
        return None

    try:
        return with_admin(",".join(map(str, addresses.values())), _ASK_TIMEOUT_S, ask)
    except CannotAsk as error:
        return str(error)


def _risks(verdict: Verdict) -> str:
    """Return the partitions at risk with their reasons, the first few of them."""
    risks = [f"{p} would have no leader: {why}" for p, why in verdict.leaderless.items()]
    risks += [f"{p} would be below min ISR: {why}" for p, why in verdict.below_min_isr.items()]
    more = f" and {len(risks) - _MAX_NAMED} more" if len(risks) > _MAX_NAMED else ""
    return "; ".join(risks[:_MAX_NAMED]) + more


def _ids(brokers: Iterable[BrokerId]) -> str:
    """Return the ids with commas."""
    return ", ".join(map(str, brokers))
