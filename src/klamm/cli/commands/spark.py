"""`klamm spark`: klamm on the executors of a Spark cluster."""

from typing import Annotated

import typer

from klamm.cli.output import print_line
from klamm.runtime.disk import RealDisk

spark_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@spark_app.callback()
def _spark() -> None:
    """Bring klamm to the executors of a Spark cluster."""


@spark_app.command()
def package(
    directory: Annotated[str, typer.Option("--directory", help="directory for the archive and the script")] = ".",
) -> None:
    """Make the archive for --archives of spark-submit, and the script that it runs; print the command.

    Executors need no klamm then, only the same Python on the same platform as this machine.
    """
    from klamm.spark.package import ARCHIVE, SCRIPT, requirement, submit_command, write_package

    write_package(RealDisk(), directory)
    print_line(f"Wrote {ARCHIVE} and {SCRIPT} to {directory}, for executors with {requirement()}. Run for example:")
    print_line(f"  {submit_command(directory)}")
