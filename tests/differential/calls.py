"""Generated scripts, stored as the verb calls they make, with what Apache Kafka did."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tests.differential import recordings
from tests.differential.recordings import GENERATED, Recording
from tests.differential.script import Script
from tests.differential.script_context import ScriptContext

BROKERS = (1, 2, 3, 4)


class Call(NamedTuple):
    verb: str
    args: Sequence[Any]
    options: Mapping[str, Any] = {}

    async def on(self, context: ScriptContext) -> None:
        """Call the verb on a script's context."""
        await getattr(context, self.verb)(*self.args, **self.options)

    def __str__(self) -> str:
        """The call as a line of Python code."""
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"    await s.{self.verb}({', '.join(words)})"


def as_script(name: str, calls: Sequence[Call]) -> Script:
    """A script that makes these calls."""

    async def run(context: ScriptContext) -> None:
        for call in calls:
            await call.on(context)

    return Script(name, run, BROKERS, False, "3.9", {})


def as_text(name: str, calls: Sequence[Call]) -> str:
    """Python code of the script, for a module of `scripts`."""
    return "\n".join(
        [f"@script({', '.join(map(str, BROKERS))})", f"async def {name}(s: ScriptContext) -> None:", *map(str, calls)]
    )


def generated_names() -> list[str]:
    """The names of all stored generated scripts."""
    return recordings.names(GENERATED)


def keep(name: str, calls: Sequence[Call], steps: list[dict[str, Any]]) -> None:
    """Add a generated script and its recorded steps in memory; `recordings.save` writes it."""
    recordings.keep(GENERATED, name, Recording(steps, [_plain(call) for call in calls]))


def read_calls(name: str) -> list[Call]:
    """The calls of a stored script."""
    return [_call(*each) for each in recordings.read(GENERATED, name).calls]


def _plain(call: Call) -> list[Any]:
    """A call as JSON data; a mapping becomes a marked list of its items."""
    return [call.verb, [_items(each) for each in call.args], dict(call.options)]


def _items(value: Any) -> Any:
    """Replace mappings by marked lists of their items."""
    return {"items": [[key, each] for key, each in value.items()]} if isinstance(value, dict) else value


def _call(verb: str, args: Sequence[Any], options: Mapping[str, Any]) -> Call:
    """The call with these arguments, with marked lists turned back into mappings."""
    return Call(verb, [_mapping(each) for each in args], options)


def _mapping(value: Any) -> Any:
    """Turn marked lists back into mappings."""
    if not isinstance(value, dict):
        return value
    return {tuple(key) if isinstance(key, list) else key: each for key, each in value["items"]}
