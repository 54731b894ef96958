"""The options that a read or a write takes: obeyed, accepted without effect, or refused; names in any case."""

import difflib
import warnings
from collections.abc import Callable, Mapping, Sequence
from enum import Flag, auto
from typing import Any, Final, NamedTuple

from klamm.spark.errors import BadOption, OptionOfOtherKind


class Reads(Flag):
    """The kinds of reads, or of writes, that an option is for."""

    BATCH = auto()
    STREAM = auto()
    BOTH = BATCH | STREAM


class Option(NamedTuple):
    name: str
    parse: Callable[[str], Any]
    default: str | None
    reads: Reads
    meaning: str


_KINDS: Final = {Reads.BOTH: "", Reads.BATCH: "batch", Reads.STREAM: "streaming"}


class OptionSet:
    def __init__(
        self, what: str, table: Sequence[Option], no_effect: Mapping[str, str], refused: Mapping[str, str]
    ) -> None:
        """`what` has the options: `read` or `write`. In names of `refused`, `.*` stands for all that follows."""
        self.table = table
        self._what = what
        self._by_name = {option.name.lower(): option for option in table}
        self._no_effect = no_effect
        self._refused = refused
        self._lower_no_effect = {name.lower(): why for name, why in no_effect.items()}
        self._lower_refused = {name.lower(): why for name, why in refused.items()}

    def parse(self, given: Mapping[str, str], kind: Reads) -> dict[str, Any]:
        """The value of each option, None where it has none. Raises BadOption for unknown, refused and wrong ones."""
        lower = {name.lower(): value for name, value in given.items()}
        for name in lower:
            self._check_known(name, kind)
        return {option.name: _parse_option(option, lower) for option in self.table}

    def reason_without_effect(self, name: str) -> str | None:
        """Why an option changes nothing; None for one that is not in the table."""
        return self._lower_no_effect.get(name.lower())

    def refusal(self, name: str) -> str | None:
        """Why an option is refused; None for one that is not."""
        lower = name.lower()
        if lower in self._lower_refused:
            return self._lower_refused[lower]
        prefixes = (n.removesuffix("*") for n in self._lower_refused if n.endswith("*"))
        return next((self._lower_refused[f"{p}*"] for p in prefixes if lower.startswith(p)), None)

    def warn_without_effect(self, given: Mapping[str, str]) -> None:
        """Warn of each option that is accepted but changes nothing."""
        for name in given:
            if why := self.reason_without_effect(name):
                warnings.warn(f"option {name} has no effect: {why}", stacklevel=2)

    def as_markdown(self) -> str:
        """Three tables in Markdown: options obeyed, those without effect, and those refused."""
        obeyed = [f"| `{o.name}` | {_code(o.default)} | {_KINDS[o.reads]} | {o.meaning} |" for o in self.table]
        without = [f"| `{name}` | {why} |" for name, why in self._no_effect.items()]
        refused = [f"| `{name}` | {why} |" for name, why in self._refused.items()]
        parts = (
            ["| option | default | only for | meaning |", "|---|---|---|---|", *obeyed],
            ["### Accepted without effect", "", f"A warning says so once for each {self._what}.", "",
             "| option | because |", "|---|---|", *without],
            ["### Refused", "", "| option | because |", "|---|---|", *refused],
        )  # fmt: skip
        return "\n\n".join("\n".join(part) for part in parts) + "\n"

    def _check_known(self, name: str, kind: Reads) -> None:
        """Raise BadOption for an unknown or refused option, with the nearest known one; `name` is in lower case."""
        if name in self._by_name:
            option = self._by_name[name]
            if kind not in option.reads:
                mine, other = ("batch", "streaming") if kind is Reads.BATCH else ("streaming", "batch")
                raise OptionOfOtherKind(
                    f"option {option.name} is only for {other} {self._what}s, and this is a {mine} {self._what}: "
                    "remove it"
                )
            return
        if why := self.refusal(name):
            raise BadOption(f"option {name} must not be set, because {why}")
        if self.reason_without_effect(name):
            return
        near = difflib.get_close_matches(name, self._by_name, n=1, cutoff=0.5)
        if near:
            raise BadOption(f"option {name} does not exist. Did you mean {self._by_name[near[0]].name}?")
        raise BadOption(f"option {name} does not exist. Use some of: {', '.join(o.name for o in self.table)}")


def _parse_option(option: Option, given: Mapping[str, str]) -> Any:
    """Return the parsed value of the option, or of its default; None where neither is given. Raises BadOption."""
    text = given.get(option.name.lower(), option.default)
    if text is None:
        return None
    try:
        return option.parse(text)
    except ValueError as error:
        raise BadOption(f"option {option.name} is not valid: {error}") from error


def _code(text: str | None) -> str:
    """The text in backquotes for Markdown; empty for None."""
    return "" if text is None else f"`{text}`"
