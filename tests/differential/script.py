"""What a script is, and the list of all of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.differential.stage import Stage

STORAGE_ERROR = 56


@dataclass(frozen=True)
class Script:
    name: str
    run: Callable[[Stage], Awaitable[None]]
    brokers: Sequence[int]
    is_cold: bool
    """It starts the controller itself."""
    protocol: str
    """The controller's inter.broker.protocol.version."""
    given: Mapping[str, str]
    """Other properties of the node under test."""

    async def play(self, stage: Stage) -> None:
        await stage.open(self.brokers)
        if not self.is_cold:
            await stage.start_controller()
        await self.run(stage)


SCRIPTS: dict[str, Script] = {}


def script(
    *brokers: int, cold: bool = False, protocol: str = "3.9", given: Mapping[str, str] | None = None
) -> Callable[[Callable[[Stage], Awaitable[None]]], Script]:
    """Keep a coroutine as a script of its name, with brokers 1, 2 and 3 unless others are named."""

    def keep(run: Callable[[Stage], Awaitable[None]]) -> Script:
        assert run.__name__ not in SCRIPTS, f"two scripts are called {run.__name__}"
        made = SCRIPTS[run.__name__] = Script(run.__name__, run, brokers or (1, 2, 3), cold, protocol, given or {})
        return made

    return keep
