"""`klamm audit --zookeeper HOST:PORT/chroot`: read the tree, say what is wrong. Exit status 1 when unhealthy."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from klamm.audit.findings import Finding, findings, is_healthy
from klamm.audit.snapshot import Snapshot, read_snapshot
from klamm.cli.speech import is_terminal, say, show
from klamm.model.errors import KlammError
from klamm.runtime.main_loop import run_loop
from klamm.runtime.world import World, real_world
from klamm.zk.client import ZooKeeper
from klamm.zk.errors import NoNode

SESSION_MS: Final = 30_000
_SHOWN: Final = 5
_SHOWN_OF_A_KIND: Final = 10


class CannotAudit(KlammError):
    pass


def audit(zookeeper: str, as_json: bool, timeout_s: float, auth: Sequence[str]) -> int:
    """The exit status: 0 healthy, 1 not. Raises CannotAudit."""
    snapshot = take_snapshot(zookeeper, timeout_s, auth)
    found = findings(snapshot)
    if as_json:
        say(msgspec.json.encode(as_data(snapshot, found)).decode())
    else:
        _print(snapshot, found)
    return 0 if is_healthy(found) else 1


def take_snapshot(zookeeper: str, timeout_s: float, auth: Sequence[str] = ()) -> Snapshot:
    """Raises CannotAudit."""
    return run_loop(_take(real_world(), zookeeper, timeout_s, [parse_auth(text) for text in auth]))


def parse_auth(text: str) -> tuple[str, bytes]:
    """`digest:user:password`. Raises CannotAudit."""
    scheme, colon, credentials = text.partition(":")
    if not colon or not scheme or not credentials:
        raise CannotAudit(f"--auth {text!r} is not SCHEME:CREDENTIALS, for example digest:kafka:secret")
    return scheme, credentials.encode()


async def _take(world: World, zookeeper: str, timeout_s: float, auth: Sequence[tuple[str, bytes]]) -> Snapshot:
    try:
        client = ZooKeeper(world, zookeeper, SESSION_MS)
        await client.connect(timeout_s)
    except (KlammError, ValueError) as error:
        raise CannotAudit(f"ZooKeeper at {zookeeper} cannot be asked: {error}") from error
    try:
        for scheme, credentials in auth:
            await client.add_auth(scheme, credentials)
        return await read_snapshot(client, world.clock.now_ms(), zookeeper)
    except NoNode as error:
        raise CannotAudit(
            f"no Kafka cluster lives at {zookeeper}: {error}; name its chroot, for example {zookeeper}/kafka"
        ) from error
    finally:
        await client.close()


def as_data(snapshot: Snapshot, found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "healthy": is_healthy(found),
        "taken_ms": snapshot.taken_ms,
        "controller": snapshot.controller,
        "controller_epoch": snapshot.controller_epoch,
        "brokers": sorted(snapshot.broker_held),
        "topics": len(snapshot.topic_ids),
        "partitions": len(snapshot.assignments),
        "findings": [f._asdict() for f in found],
    }


def _print(snapshot: Snapshot, found: Sequence[Finding]) -> None:
    controller = "nobody" if snapshot.controller is None else f"broker {snapshot.controller}"
    say(
        f"{len(snapshot.broker_held)} brokers, {len(snapshot.topic_ids):,} topics, "
        f"{len(snapshot.assignments):,} partitions; controller: {controller}, epoch {snapshot.controller_epoch}"
    )
    shown = _first_of_each_kind(found)
    rows = [(n, f.severity, f.kind, _some(f.subjects), f.why, f.remedy) for n, f in enumerate(shown, start=1)]
    columns = ("", "severity", "what", "where", "why", "what mends it")
    if rows and is_terminal():  # a command that is broken over the lines of a narrow column cannot be copied
        show(columns[:-1], [row[:-1] for row in rows])
        say("what mends it:")
        for number, *_, remedy in rows:
            say(f"{number:>3}  {remedy}")
    elif rows:
        show(columns[1:], [row[1:] for row in rows])
    if len(shown) < len(found):
        say(f"and {len(found) - len(shown):,} more of these kinds: --json tells all")
    unhealthy = sum(1 for f in found if f.severity != "notice")
    say("healthy" if is_healthy(found) else f"unhealthy: {unhealthy} finding{'s' if unhealthy > 1 else ''}")


def _first_of_each_kind(found: Sequence[Finding]) -> list[Finding]:
    """Reasons and remedies may be of one partition each, and there may be thousands."""
    seen = Counter[str]()
    shown: list[Finding] = []
    for finding in found:
        seen[finding.kind] += 1
        if seen[finding.kind] <= _SHOWN_OF_A_KIND:
            shown.append(finding)
    return shown


def _some(subjects: Sequence[str]) -> str:
    more = len(subjects) - _SHOWN
    return ", ".join(subjects[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
