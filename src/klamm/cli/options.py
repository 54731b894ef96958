"""Options that several commands share."""

from collections.abc import Sequence
from typing import Annotated

import typer

from klamm.model.errors import UsageError

BOOTSTRAP_VARIABLE = "KLAMM_BOOTSTRAP_SERVER"

Override = Annotated[
    list[str] | None, typer.Option("--override", help="KEY=VALUE in place of what server.properties says; repeatable")
]
Data = Annotated[str, typer.Option("--data", help="directory of a `klamm up`")]
Ensemble = Annotated[str, typer.Option("--zookeeper", help="HOST:PORT[,HOST:PORT][/chroot] of the cluster")]
Patience = Annotated[float, typer.Option("--timeout", help="seconds to wait for ZooKeeper")]
AsJson = Annotated[bool, typer.Option("--json", help="as JSON")]
Auth = Annotated[
    list[str] | None, typer.Option("--auth", help="SCHEME:CREDENTIALS, for example digest:kafka:secret; repeatable")
]
Bootstrap = Annotated[
    str,
    typer.Option("--bootstrap-server", "-b", envvar=BOOTSTRAP_VARIABLE, help="HOST:PORT[,HOST:PORT] of any cluster"),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="seconds until it is given up")]
Wait = Annotated[bool, typer.Option("--wait", help="end only when it has come about, or --timeout is over")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]

LOCAL = "127.0.0.1:9092"
TIMEOUT_S = 30.0


def parse_pairs(option: str, texts: Sequence[str], example: str) -> dict[str, str]:
    """`KEY=VALUE` each. Raises UsageError for one that is not."""
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} {text!r} is not KEY=VALUE, for example {example}")
        pairs[key.strip()] = value.strip()
    return pairs
