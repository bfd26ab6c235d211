"""The root command. It imports the module of a sub-command when that sub-command is called or described."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core
import typer.main

from penstock.cli.client_config import use
from penstock.cli.completion import install_completion, show_completion
from penstock.cli.data_files import use_keys

__all__ = ["app"]

# In the order of the help. Each is a module of `commands`, with an `app` or with a function of the same name.
_COMMANDS = (
    "up",
    "cluster",
    "plan",
    "cert",
    "broker",
    "partition",
    "quorum",
    "topic",
    "top",
    "console",
    "health",
    "dashboards",
    "produce",
    "consume",
    "group",
    "share",
    "bridge",
    "transaction",
    "config",
    "acl",
    "quota",
    "role",
    "user",
    "log",
    "encryption",
    "telemetry",
    "version",
)
_STYLE: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}


class _Commands(MutableMapping[str, Any]):
    """Sub-commands by name, each imported when it is first looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = dict.fromkeys(_COMMANDS)

    def __getitem__(self, name: str) -> Any:
        command = self._loaded[name]
        if command is None:
            command = self._loaded[name] = _load(name)
        return command

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded)

    def __len__(self) -> int:
        return len(self._loaded)


def _load(name: str) -> Any:
    module = import_module(f"penstock.cli.commands.{name}")
    parent = typer.Typer(add_completion=False, **_STYLE)
    parent.callback()(lambda: None)  # with a callback it is a group, also of a single command
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=name)
    else:
        parent.command(name)(getattr(module, name))
    group: Any = typer.main.get_command(parent)
    return group.commands[name]


class _Root(typer.core.TyperGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()


app = typer.Typer(
    name="penstock",
    cls=_Root,
    no_args_is_help=True,
    add_completion=False,  # `completion` has its own, with errors that name the remedy
    # Help is as wide as the terminal; lines longer than this are hard to read.
    context_settings={"max_content_width": 160},
    **_STYLE,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from penstock.cli.commands.version import version

        version()
        raise typer.Exit


@app.callback()
def penstock(
    shows_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the versions and exit."),
    ] = False,
    installs_completion: Annotated[
        bool,
        typer.Option(
            "--install-completion",
            callback=install_completion,
            is_eager=True,
            help="Install completion of commands, options, topics and groups for this shell.",
        ),
    ] = False,
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            envvar="PENSTOCK_COMMAND_CONFIG",
            help="Client configs for TLS and SASL: a properties file with the names of Kafka's clients.",
        ),
    ] = None,
    encryption_keys: Annotated[
        Path | None,
        typer.Option(
            "--encryption-keys",
            envvar="PENSTOCK_ENCRYPTION_KEYS_FILE",
            help="The file with the keys of encrypted data, for commands that read the files of a broker.",
        ),
    ] = None,
    shows_completion: Annotated[
        bool,
        typer.Option(
            "--show-completion",
            callback=show_completion,
            is_eager=True,
            help="Print the completion script for this shell.",
        ),
    ] = False,
) -> None:
    """A message broker that speaks the Kafka protocol: run brokers, and use any Kafka cluster."""
    use(command_config)
    use_keys(encryption_keys)
