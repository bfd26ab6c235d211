"""The root command. It imports the module of a sub-command when that sub-command is called or described."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.main

from penstock.cli.client_config import use
from penstock.cli.command_table import SUMMARIES
from penstock.cli.completion import install_completion, show_completion
from penstock.cli.data_files import use_keys
from penstock.cli.help_text import Root, coloured, described

__all__ = ["app"]

_STYLE: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}


class _Commands(MutableMapping[str, Any]):
    """Sub-commands by name, each imported when it is first looked up."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = dict.fromkeys(SUMMARIES)

    def __contains__(self, name: object) -> bool:
        return name in self._loaded

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
    return described(group.commands[name])


class _Root(Root):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands()
        coloured(self)


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
    ctx: typer.Context,
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
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            envvar="PENSTOCK_PROFILE",
            metavar="NAME",
            help="The cluster to use: a name of `penstock profile list`.",
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
    encryption_config: Annotated[
        Path | None,
        typer.Option(
            "--encryption-config",
            envvar="PENSTOCK_ENCRYPTION_CONFIG_FILE",
            help="The config file of a broker, whose key provider has the keys of encrypted data.",
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
    # Longer than other functions because its parameters are the options of the command.
    of_profile = _apply_profile(ctx, profile)
    use(of_profile if command_config is None else command_config)
    use_keys(encryption_keys, encryption_config)


def _apply_profile(ctx: typer.Context, name: str | None) -> Path | None:
    """Make the brokers of a profile the default of --bootstrap. Returns its file of client configs."""
    from penstock.cli.profiles import defaults_of, use_profile

    found = use_profile(name)
    if found is None:
        return None
    called = ctx.invoked_subcommand
    root: Any = ctx.command
    if called is not None and called in root.commands and called != "profile":
        ctx.default_map = {called: defaults_of(root.commands[called], found.bootstrap)}
    return None if found.command_config is None else Path(found.command_config)
