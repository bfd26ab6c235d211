"""The options that all bridges have."""

from __future__ import annotations

import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple
from urllib.parse import urlsplit

import typer

from penstock.cli.failure import misused

if TYPE_CHECKING:
    from penstock.bridge.copying import CopySettings
    from penstock.bridge.mapping import KeyRule

__all__ = ["Copying", "RefusedMessages", "key_option", "refuse_secret_url"]

#: RabbitMQ's own user, which only clients on its machine may be
_NO_SECRET: Final = ("guest", "guest")


def key_option(text: str, natural: str) -> KeyRule:
    """Read --key, whose natural key is that of the source."""
    from penstock.bridge.errors import BridgeError
    from penstock.bridge.mapping import key_rule

    try:
        return key_rule(text, natural)
    except BridgeError as error:
        misused(str(error))


def refuse_secret_url(parameter: str, urls: str, variable: str, *, is_token: bool = False) -> None:
    """End the command if an option has a URL with a secret, and not from the environment.

    A user without a password is a secret if it `is_token`.
    """
    if urls == os.environ.get(variable):
        return
    for url in urls.split(","):
        user, _, password = urlsplit(url.strip()).netloc.rpartition("@")[0].partition(":")
        if (password or (user and is_token)) and (user, password) != _NO_SECRET:
            misused(
                f"--{parameter} has a secret: `ps` and the shell's history show the arguments of a command. "
                f"Put the URL into the environment as {variable}"
            )


class RefusedMessages(StrEnum):
    STOP = "stop"
    RELEASE = "release"


class Copying(NamedTuple):
    """The options that all bridges have."""

    reverse: Annotated[
        bool, typer.Option("--reverse", help="Copy from the topic to the other system, for a rollback.")
    ] = False
    copies: Annotated[
        bool,
        typer.Option(
            "--copies", help="Copy also what a bridge has copied from the target; without it this is skipped."
        ),
    ] = False
    group: Annotated[
        str | None,
        typer.Option(
            "--group", "-g", help="The consumer group of --reverse. [default: penstock-bridge-TOPIC]"
        ),
    ] = None
    in_flight: Annotated[
        int,
        typer.Option("--in-flight", min=1, max=50_000, help="Messages received and not yet acknowledged."),
    ] = 1000
    refused: Annotated[
        RefusedMessages,
        typer.Option("--refused", help="What to do with messages that the target refuses."),
    ] = RefusedMessages.STOP
    limit: Annotated[int | None, typer.Option("--count", "-n", min=1, help="Stop after N messages.")] = None
    exit_at_end: Annotated[
        bool, typer.Option("--exit-at-end", help="Stop when the source has no more messages.")
    ] = False

    def settings(self) -> CopySettings:
        from penstock.bridge.copying import CopySettings

        refused: Literal["stop", "release"] = "stop" if self.refused is RefusedMessages.STOP else "release"
        if self.reverse and refused == "release":
            misused("--refused release needs a source that takes messages back, and a topic does not")
        return CopySettings(
            in_flight=self.in_flight, count=self.limit, exit_at_end=self.exit_at_end, refused=refused
        )
