"""`penstock config describe|set|unset`, for topics, brokers and groups."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from penstock.cli.completion import group_names, topic_names
from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson, pairs

if TYPE_CHECKING:
    from confluent_kafka.admin import ConfigResource

app = typer.Typer(help="Show and change the configs of topics, brokers and groups.", no_args_is_help=True)

#: the names of configs of one listener start with this and the name of the listener
_OF_A_LISTENER = "listener.name."
_AT_DEFAULT = "all configs have their defaults: --all shows them"

Topic = Annotated[str | None, typer.Option("--topic", help="The topic's name.", autocompletion=topic_names)]
Broker = Annotated[int | None, typer.Option("--broker", help="The broker's id.")]
AllBrokers = Annotated[bool, typer.Option("--all-brokers", help="The defaults of all brokers.")]
Group = Annotated[
    str | None, typer.Option("--group", help="The consumer group's name.", autocompletion=group_names)
]


class Owner(NamedTuple):
    """The owner of configs: a topic, a broker, all brokers or a group."""

    topic: Topic = None
    broker: Broker = None
    all_brokers: AllBrokers = False
    group: Group = None

    def resource(self) -> ConfigResource | None:
        """The resource that the options name; None for the defaults of all brokers."""
        named = (self.topic is not None, self.broker is not None, self.all_brokers, self.group is not None)
        if sum(named) != 1:
            misused("name a resource: --topic NAME, --broker ID, --all-brokers or --group NAME")
        if self.all_brokers:
            return None

        from penstock.cli.alteration import broker_resource, group_resource, topic_resource

        if self.topic is not None:
            return topic_resource(self.topic)
        return group_resource(self.group) if self.group is not None else broker_resource(str(self.broker))


@app.command()
@examples("penstock config describe --topic orders --all")
@grouped
def describe(
    show_all: Annotated[bool, typer.Option("--all", help="Also show defaults.")] = False,
    *,
    owner: Owner,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Show configs that are set, and their sources; with --all, every config."""
    resource = owner.resource()

    from penstock.cli.alteration import common_entries, config_entries
    from penstock.cli.output import print_rows

    if resource is None:
        with connection.direct() as line:
            entries = common_entries(line)
    else:
        entries = config_entries(connection.cluster(), resource)
    rows = [entry for entry in entries if show_all or entry["source"] != "DEFAULT_CONFIG"]
    print_rows(
        rows,
        as_json=as_json,
        columns=("name", "value", "source", "read_only"),
        empty="nothing is set for all brokers" if resource is None else _AT_DEFAULT,
    )


@app.command("set")
@examples(
    "penstock config set --topic orders cleanup.policy=compact",
    "penstock config set --all-brokers penstock.balance=leaders",
)
@grouped
def set_configs(
    configs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE")],
    *,
    owner: Owner,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Set configs; other configs do not change. Passwords and keys are '${file:PATH}' or '${env:NAME}'."""
    resource = owner.resource()
    values = pairs(configs, "config")
    _alter(resource, _with_secrets(values), [], connection, as_json)


@app.command()
@examples("penstock config unset --topic orders cleanup.policy")
@grouped
def unset(
    names: Annotated[list[str], typer.Argument(metavar="KEY")],
    *,
    owner: Owner,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Unset configs: they return to their defaults."""
    _alter(owner.resource(), {}, names, connection, as_json)


def _with_secrets(values: dict[str, str]) -> dict[str, str]:
    """The values, with secrets read from the files and variables that they name.

    Why here: brokers store values as they are, and the file is on this machine.
    """
    from penstock.cli.config_sources import resolved_configs
    from penstock.cli.private_files import is_secret, refuse_secret_arguments

    refuse_secret_arguments(values)
    return values | resolved_configs({name: value for name, value in values.items() if is_secret(name)})


def _warn_of_unknown(resource: ConfigResource | None, names: Iterable[str]) -> None:
    """Warn of unknown names. Why: brokers store them, as Kafka does, so a typo would go unnoticed."""
    from confluent_kafka.admin import ResourceType

    from penstock.model.config import BROKER_KEYS
    from penstock.model.config.keys import find_key
    from penstock.model.errors import InvalidConfig

    if resource is not None and resource.restype is not ResourceType.BROKER:
        return
    for name in names:
        if name.startswith(_OF_A_LISTENER):
            continue
        try:
            find_key(BROKER_KEYS, name, "broker")
        except InvalidConfig as error:
            print(
                f"penstock: warning: {error} (brokers store it anyway; `config unset` removes it)",
                file=sys.stderr,
            )


def _alter(
    resource: ConfigResource | None,
    values: dict[str, str],
    removed: list[str],
    connection: Connection,
    as_json: bool,
) -> None:
    from penstock.cli.alteration import alter_common, alter_configs
    from penstock.cli.outcomes import print_report
    from penstock.cli.private_files import is_secret

    _warn_of_unknown(resource, values)
    if resource is None:
        with connection.direct() as line:
            alter_common(line, values, removed)
    else:
        alter_configs(connection.cluster(), resource, values, removed)
    shown = {name: "[hidden]" if is_secret(name) else value for name, value in values.items()}
    lines = [f"set {name}={value}" for name, value in shown.items()]
    print_report({"set": shown, "unset": removed}, [*lines, *(f"unset {name}" for name in removed)], as_json)
