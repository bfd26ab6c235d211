"""`penstock dashboards export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.help_text import examples
from penstock.cli.options import AsJson

app = typer.Typer(help="Grafana dashboards and Prometheus alert rules.", no_args_is_help=True)


@app.callback()
def dashboards() -> None:
    """Grafana dashboards and Prometheus alert rules."""


@app.command()
@examples("penstock dashboards export ./monitoring")
def export(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="Created if it does not exist.")],
    as_json: AsJson = False,
) -> None:
    """Write the Grafana dashboards as JSON, and the alert rules for Prometheus."""
    from penstock.cli.outcomes import print_outcomes

    print_outcomes("file", dict.fromkeys(map(str, write_files(directory)), "written"), as_json)


def write_files(directory: Path) -> list[Path]:
    """Write the dashboards and the alert rules; returns their paths."""
    import json
    from importlib.resources import files

    from penstock.cli.failure import Failure
    from penstock.observability.dashboards import DASHBOARDS
    from penstock.observability.grafana import render

    contents = {f"{each.name}.json": json.dumps(render(each), indent=2) + "\n" for each in DASHBOARDS}
    rules = files("penstock.observability").joinpath("alerts.yml")
    contents["penstock-alerts.yml"] = rules.read_text(encoding="utf-8")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            (directory / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write to {directory}: {error.strerror}; choose another directory") from error
    return [directory / name for name in contents]
