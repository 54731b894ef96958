"""Lives: scripts that a generator made, kept as the verbs they call, with what Apache Kafka did.

`lives/NAME.json.gz` has the calls and the steps; `zcat` shows them. A life is a script like any other; only nobody
wrote it.
"""

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.differential.script import Script
from tests.differential.stage import Stage

LIVES = Path(__file__).parent / "lives"
BROKERS = (1, 2, 3, 4)


class Call(NamedTuple):
    verb: str
    args: Sequence[Any]
    options: Mapping[str, Any] = {}

    async def on(self, stage: Stage) -> None:
        await getattr(stage, self.verb)(*self.args, **self.options)

    def __str__(self) -> str:
        """As a line of a script."""
        words = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.options.items())]
        return f"    await s.{self.verb}({', '.join(words)})"


def as_script(name: str, calls: Sequence[Call]) -> Script:
    async def run(stage: Stage) -> None:
        for call in calls:
            await call.on(stage)

    return Script(name, run, BROKERS, False, "3.9", {})


def as_text(name: str, calls: Sequence[Call]) -> str:
    """Ready to be pasted into a module of `scripts`."""
    return "\n".join(
        [f"@script({', '.join(map(str, BROKERS))})", f"async def {name}(s: Stage) -> None:", *map(str, calls)]
    )


def kept_lives() -> list[str]:
    return sorted(path.name.removesuffix(".json.gz") for path in LIVES.glob("*.json.gz"))


def keep(name: str, calls: Sequence[Call], steps: list[dict[str, Any]]) -> None:
    content = {"calls": [_plain(call) for call in calls], "steps": steps}
    LIVES.mkdir(exist_ok=True)
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"
    (LIVES / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def read_life(name: str) -> tuple[list[Call], list[dict[str, Any]]]:
    content = json.loads(gzip.decompress((LIVES / f"{name}.json.gz").read_bytes()))
    return [_call(*each) for each in content["calls"]], content["steps"]


def _plain(call: Call) -> list[Any]:
    """JSON has no pairs as keys: a mapping becomes its items, marked."""
    return [call.verb, [_items(each) for each in call.args], dict(call.options)]


def _items(value: Any) -> Any:
    return {"items": [[key, each] for key, each in value.items()]} if isinstance(value, dict) else value


def _call(verb: str, args: Sequence[Any], options: Mapping[str, Any]) -> Call:
    return Call(verb, [_mapping(each) for each in args], options)


def _mapping(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {tuple(key) if isinstance(key, list) else key: each for key, each in value["items"]}
