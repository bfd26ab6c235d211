"""Groups of options as one parameter of a command."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.testing import CliRunner

from penstock.cli.option_groups import Connection, grouped

app = typer.Typer()


@app.command()
@grouped
def show(
    name: str,
    loud: Annotated[bool, typer.Option("--loud")] = False,
    *,
    connection: Connection,
    last: Annotated[int, typer.Option("--last")] = 1,
) -> None:
    """Show the parameters."""
    print(name, loud, tuple(connection), last)


def test_a_group_has_one_option_per_field_in_place_of_its_parameter() -> None:
    text = CliRunner().invoke(app, ["--help"], terminal_width=200).output
    options = [text.index(option) for option in ("--loud", "--bootstrap", "--timeout", "--last")]
    assert options == sorted(options)
    assert "Show the parameters." in text
    assert "--connection" not in text


def test_a_group_takes_defaults_and_given_values() -> None:
    assert CliRunner().invoke(app, ["a"]).output == "a False ('127.0.0.1:9092', 10.0) 1\n"
    given = ["a", "--loud", "-b", "h:1", "--timeout", "2", "--last", "3"]
    assert CliRunner().invoke(app, given).output == "a True ('h:1', 2.0) 3\n"


def test_the_options_of_a_group_are_checked() -> None:
    refused = CliRunner().invoke(app, ["a", "--bootstrap", "nowhere"])
    assert refused.exit_code == 2
    assert "'nowhere' is not HOST:PORT" in refused.output
