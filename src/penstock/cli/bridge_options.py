"""The options that all bridges have."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from penstock.cli.failure import misused

if TYPE_CHECKING:
    from penstock.bridge.copying import CopySettings
    from penstock.bridge.mapping import KeyRule

__all__ = ["Copying", "RefusedMessages", "key_option"]


def key_option(text: str, natural: str) -> KeyRule:
    """Read --key, whose natural key is that of the source."""
    from penstock.bridge.errors import BridgeError
    from penstock.bridge.mapping import key_rule

    try:
        return key_rule(text, natural)
    except BridgeError as error:
        misused(str(error))


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
