"""`klamm config get|set|unset|explain`, with the entities of kafka-configs."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import typer

from klamm.cli import config_reference
from klamm.cli.admin.client import with_admin
from klamm.cli.admin.configs import change_configs, read_configs
from klamm.cli.admin.refusals import print_refusals
from klamm.cli.options import BOOTSTRAP_VARIABLE, LOCAL, TIMEOUT_S, AsJson, Bootstrap, Timeout, parse_pairs
from klamm.cli.output import print_json, print_line, print_table
from klamm.config.entities import BROKER, TOPIC, Config, Configs, Entity
from klamm.config.topic_config import ConfigSource
from klamm.model.errors import UsageError

config_app = typer.Typer(help="Get, set, unset and explain configs of topics and brokers.", no_args_is_help=True)


class EntityType(StrEnum):
    TOPICS = config_reference.TOPICS
    BROKERS = config_reference.BROKERS


Type = Annotated[EntityType | None, typer.Option("--entity-type", help="topics or brokers")]
Name = Annotated[str | None, typer.Option("--entity-name", help="topic name or broker id")]
Default = Annotated[bool, typer.Option("--entity-default", help="the default of all brokers")]
OfTopic = Annotated[str | None, typer.Option("--topic", help="short for --entity-type topics --entity-name TOPIC")]
OfBroker = Annotated[
    int | None, typer.Option("--broker", min=0, help="short for --entity-type brokers --entity-name ID")
]


def entity(kind: EntityType | None, name: str | None, default: bool, topic: str | None, broker: int | None) -> Entity:
    """The entity that the options name. Raises UsageError."""
    ways = [
        *([Entity(TOPIC, topic)] if topic is not None else []),
        *([Entity(BROKER, str(broker))] if broker is not None else []),
        *([_entity_by_type(kind, name, default)] if kind is not None else []),
    ]
    if len(ways) == 1:
        if kind is None and (name is not None or default):
            raise UsageError("--entity-name and --entity-default need --entity-type.")
        return ways[0]
    raise UsageError("Choose one of --topic T, --broker N, and --entity-type topics|brokers with --entity-name NAME.")


def _entity_by_type(kind: EntityType, name: str | None, default: bool) -> Entity:
    """The entity of `--entity-type` with `--entity-name` or `--entity-default`. Raises UsageError."""
    if default and kind is EntityType.TOPICS:
        raise UsageError("Topics have no defaults of their own: set them on the brokers with --entity-type brokers.")
    if (name is None) != default:
        raise UsageError(f"--entity-type {kind} needs --entity-name NAME, or --entity-default for brokers.")
    if kind is EntityType.BROKERS and not default and not (name and name.isascii() and name.isdigit()):
        raise UsageError(f"--entity-name {name!r} is not a broker id. Give for example 1.")
    return Entity(TOPIC if kind is EntityType.TOPICS else BROKER, name or "")


@config_app.command()
def get(
    keys: Annotated[list[str] | None, typer.Argument(metavar="[KEY]...", help="show only these")] = None,
    entity_type: Type = None,
    entity_name: Name = None,
    entity_default: Default = False,
    topic: OfTopic = None,
    broker: OfBroker = None,
    everything: Annotated[bool, typer.Option("--all", help="also show defaults")] = False,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show configs and where their values come from; without --all or KEY only those set for this entity."""
    wanted = entity(entity_type, entity_name, entity_default, topic, broker)
    found, refused = with_admin(bootstrap, timeout, lambda admin: read_configs(admin, [wanted], keys or None))
    if refused:
        raise typer.Exit(print_refusals(refused))
    shown = _configs_to_show(found[wanted], wanted, everything or bool(keys))
    if as_json:
        print_json(
            {c.name: {"value": c.value, "source": c.source.kafka_name, "read_only": c.is_read_only} for c in shown}
        )
    else:
        rows = [
            (c.name, "(sensitive)" if c.is_sensitive else c.value, c.source.kafka_name, _synonyms_text(c))
            for c in shown
        ]
        nothing = None if keys else f"{wanted}: no config is set for it. Pass --all to see the others."
        print_table(("key", "value", "source", "set by"), rows, if_empty=nothing)
    if absent := [key for key in keys or () if key not in found[wanted]]:
        raise UsageError(f"{wanted} has no config {absent[0]}. `klamm config explain {absent[0]}` shows similar keys.")


def _configs_to_show(configs: Configs, of: Entity, everything: bool) -> list[Config]:
    """All configs with `everything`, else those that are set on the entity itself."""
    broker_source = ConfigSource.DYNAMIC_BROKER if of.name else ConfigSource.DYNAMIC_DEFAULT
    own = ConfigSource.TOPIC if of.type == TOPIC else broker_source
    return [c for _, c in sorted(configs.items()) if everything or c.source is own]


def _synonyms_text(config: Config) -> str:
    """All places that set a value, the effective one first, as kafka-configs shows them."""
    return ", ".join(f"{s.source.kafka_name}:{s.name}={s.value}" for s in config.synonyms)


@config_app.command("set")
def set_(
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...")],
    entity_type: Type = None,
    entity_name: Name = None,
    entity_default: Default = False,
    topic: OfTopic = None,
    broker: OfBroker = None,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Set configs without a restart: all of them or none."""
    wanted = entity(entity_type, entity_name, entity_default, topic, broker)
    values = parse_pairs("argument", pairs, "retention.ms=60000")
    _change_and_exit(bootstrap, timeout, wanted, values, as_json)


@config_app.command()
def unset(
    keys: Annotated[list[str], typer.Argument(metavar="KEY...")],
    entity_type: Type = None,
    entity_name: Name = None,
    entity_default: Default = False,
    topic: OfTopic = None,
    broker: OfBroker = None,
    bootstrap: Bootstrap = LOCAL,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Remove configs, so that the defaults apply again."""
    wanted = entity(entity_type, entity_name, entity_default, topic, broker)
    kind = EntityType.TOPICS if wanted.type == TOPIC else EntityType.BROKERS
    for key in keys:
        if not config_reference.is_known(key, kind) and _read_current_value(bootstrap, timeout, wanted, key) is None:
            config_reference.explain_key(key, kind)  # raises UsageError with similar keys
    _change_and_exit(bootstrap, timeout, wanted, dict.fromkeys(keys), as_json)


def _change_and_exit(
    bootstrap: str, timeout: float, of: Entity, values: Mapping[str, str | None], as_json: bool
) -> None:
    """Change the configs, print the result, and exit with its status."""
    refused = with_admin(bootstrap, timeout, lambda admin: change_configs(admin, {of: values}))
    if as_json:
        print_json({"entity": str(of), "changed": {} if refused else values, "refused": [r.as_data() for r in refused]})
    elif not refused:
        for name, value in values.items():
            print_line(f"{of}: {name} removed" if value is None else f"{of}: {name}={value}")
    raise typer.Exit(print_refusals(refused))


@config_app.command()
def explain(
    key: Annotated[str, typer.Argument(metavar="KEY")],
    entity_type: Type = None,
    entity_name: Name = None,
    entity_default: Default = False,
    topic: OfTopic = None,
    broker: OfBroker = None,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap-server",
            "-b",
            envvar=BOOTSTRAP_VARIABLE,
            help="HOST:PORT of brokers to ask for the current value",
        ),
    ] = None,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S,
) -> None:
    """Show meaning, type, default and valid values of a key, and its value for an entity."""
    kind = EntityType.TOPICS if topic is not None else EntityType.BROKERS if broker is not None else entity_type
    explained = config_reference.explain_key(key, kind)
    now: Config | None = None
    if topic is not None or broker is not None or entity_name is not None or entity_default:
        now = _read_current_value(
            bootstrap or LOCAL, timeout, entity(entity_type, entity_name, entity_default, topic, broker), key
        )
    if as_json:
        print_json([config_reference.as_data(e, now) for e in explained])
        return
    for index, about in enumerate(explained):
        if index:
            print_line()
        _print_rows(config_reference.explanation_rows(about, now))


def _print_rows(rows: Sequence[tuple[str, object]]) -> None:
    """Print each name and its fact on a line, in two columns."""
    for name, fact in rows:
        print_line(f"{name + ':' if name else '':<15}{fact}")


def _read_current_value(bootstrap: str, timeout: float, of: Entity, key: str) -> Config | None:
    """The config as the entity has it now; None if the entity does not have the key. Exits on an error."""
    found, refused = with_admin(bootstrap, timeout, lambda a: read_configs(a, [of], [key], documented=True))
    if refused:
        raise typer.Exit(print_refusals(refused))
    return found[of].get(key)
