"""Options that several commands share."""

from collections.abc import Sequence
from typing import Annotated

import typer

from klamm.model.errors import UsageError

BOOTSTRAP_VARIABLE = "KLAMM_BOOTSTRAP_SERVER"

Override = Annotated[
    list[str] | None, typer.Option("--override", help="KEY=VALUE that overrides server.properties; repeatable")
]
Data = Annotated[str, typer.Option("--data", help="data directory of `klamm up`")]
Ensemble = Annotated[str, typer.Option("--zookeeper", help="ZooKeeper of the cluster: HOST:PORT[,HOST:PORT][/chroot]")]
ConnectTimeout = Annotated[float, typer.Option("--timeout", help="seconds to wait for ZooKeeper")]
AsJson = Annotated[bool, typer.Option("--json", help="print JSON")]
Auth = Annotated[
    list[str] | None,
    typer.Option(
        "--auth", help="ZooKeeper credentials as SCHEME:CREDENTIALS, for example digest:kafka:secret; repeatable"
    ),
]
Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap-server",
        "-b",
        envvar=BOOTSTRAP_VARIABLE,
        help="brokers of the cluster, klamm's or Apache Kafka's: HOST:PORT[,HOST:PORT]",
    ),
]
Progress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="show progress on stderr; default: on a terminal")
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="give up after this many seconds")]
Wait = Annotated[bool, typer.Option("--wait", help="return when the change is complete, or at --timeout")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask for confirmation")]

LOCAL = "127.0.0.1:9092"
TIMEOUT_S = 30.0


def parse_pairs(option: str, texts: Sequence[str], example: str) -> dict[str, str]:
    """Parse `KEY=VALUE` texts. Raises UsageError for one that is not."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text!r} is not KEY=VALUE, for example {example}")
        pairs[key.strip()] = value.strip()
    return pairs
