"""`klamm rolling-restart`."""

from typing import Annotated

import typer

from klamm.cli.admin.rolling_restart import RestartStopped, RollingRestart, restart_all
from klamm.cli.options import LOCAL, Bootstrap
from klamm.cli.output import print_error, print_line
from klamm.model.errors import UsageError
from klamm.model.ids import BrokerId


def rolling_restart(
    command: Annotated[
        str,
        typer.Option(
            "--command",
            help="command that restarts one broker, with {id}, {host} and {port}: 'ssh {host} systemctl restart kafka'",
        ),
    ],
    bootstrap: Bootstrap = LOCAL,
    brokers: Annotated[
        str | None,
        typer.Option(
            "--brokers", help="broker ids separated by commas; default: all live brokers, the controller last"
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            min=0.1,
            help="the most seconds that a broker may take to restart and catch up; then it stops",
        ),
    ] = 300,
) -> None:
    """Restart the brokers with your command, one after the other, each when all partitions are in sync again.

    A command that starts a broker in the background has to redirect its output: 'klamm node run FILE >> LOG 2>&1 &'.

    Stops with exit status 1 when a partition is not in sync, would have no leader or would fall below min ISR, when a
    command fails, or when a broker does not come back.
    """
    plan = RollingRestart(bootstrap, command, _parse_ids(brokers), timeout)
    try:
        done = restart_all(plan, print_line)
    except RestartStopped as error:
        print_error(error)
        raise typer.Exit(1) from None
    print_line(f"All {len(done)} brokers were restarted, and all partitions are in sync.")


def _parse_ids(text: str | None) -> list[BrokerId] | None:
    """Return the broker ids in `1,2,3`, without duplicates; None for None. Raises UsageError."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if wrong := [part for part in parts if not (part.isascii() and part.isdigit())]:
        raise UsageError(
            f"--brokers {text!r}: {wrong[0]!r} is not a broker id. Separate ids by commas, for example 1,2."
        )
    return list(dict.fromkeys(BrokerId(int(part)) for part in parts))
