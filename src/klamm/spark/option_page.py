"""The tables of options in docs/spark.md, generated from the tables in the code."""

from klamm.spark.kafka_options import NO_EFFECT, REFUSED
from klamm.spark.option_table import TABLE, Reads

_READS = {Reads.BOTH: "", Reads.BATCH: "batch", Reads.STREAM: "streaming"}


def options_as_markdown() -> str:
    """The three tables of options in Markdown: used ones, those without effect, and refused ones."""
    obeyed = [f"| `{o.name}` | {_code(o.default)} | {_READS[o.reads]} | {o.meaning} |" for o in TABLE]
    without = [f"| `{name}` | {why} |" for name, why in NO_EFFECT.items()]
    refused = [f"| `{name}` | {why} |" for name, why in REFUSED.items()]
    parts = (
        ["| option | default | only for | meaning |", "|---|---|---|---|", *obeyed],
        ["### Accepted without effect", "", "A warning says so once for each read.", "",
         "| option | because |", "|---|---|", *without],
        ["### Refused", "", "| option | because |", "|---|---|", *refused],
    )  # fmt: skip
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _code(text: str | None) -> str:
    """The text in backquotes for Markdown; empty for None."""
    return "" if text is None else f"`{text}`"
