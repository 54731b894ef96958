"""How large the cases are; the defaults are the sizes that the limits are promised for."""

import argparse
from typing import NamedTuple, Self


class Sizes(NamedTuple):
    bomb_mib: int = 128
    batches: int = 5_000_000
    compacted_mib: int = 10_240
    cold_mib: int = 1_024
    fetch_mib: int = 50
    deleted: int = 10_000
    described: int = 20_000

    @classmethod
    def add_options(cls, parser: argparse.ArgumentParser) -> None:
        """An option for each size."""
        for name, size in cls()._asdict().items():
            parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=size, metavar="N")

    @classmethod
    def from_options(cls, options: argparse.Namespace) -> Self:
        return cls(*(getattr(options, name) for name in cls._fields))
