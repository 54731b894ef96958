"""What a script is, and the list of all of them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from tests.differential.script_context import ScriptContext

STORAGE_ERROR = 56


@dataclass(frozen=True)
class Script:
    name: str
    run: Callable[[ScriptContext], Awaitable[None]]
    brokers: Sequence[int]
    is_cold: bool
    """It starts the controller itself."""
    protocol: str
    """The controller's inter.broker.protocol.version."""
    given: Mapping[str, str]
    """Other properties of the node under test."""
    subject: str = "generated"
    """The module of `scripts/` it stands in, and the file of its recording."""

    async def play(self, context: ScriptContext) -> None:
        await context.open(self.brokers)
        if not self.is_cold:
            await context.start_controller()
        await self.run(context)


SCRIPTS: dict[str, Script] = {}


def script(
    *brokers: int, cold: bool = False, protocol: str = "3.9", given: Mapping[str, str] | None = None
) -> Callable[[Callable[[ScriptContext], Awaitable[None]]], Script]:
    """Keep a coroutine as a script of its name, with brokers 1, 2 and 3 unless others are named."""

    def keep(run: Callable[[ScriptContext], Awaitable[None]]) -> Script:
        assert run.__name__ not in SCRIPTS, f"two scripts are called {run.__name__}"
        subject = run.__module__.rpartition(".")[2]
        made = Script(run.__name__, run, brokers or (1, 2, 3), cold, protocol, given or {}, subject)
        SCRIPTS[run.__name__] = made
        return made

    return keep
