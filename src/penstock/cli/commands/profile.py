"""`penstock profile add|list|remove`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failure import Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.options import AsJson, Bootstrap

app = typer.Typer(help="Name clusters, for --profile.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAME")]


@app.command()
@examples(
    "penstock profile add prod --bootstrap broker-1:9092,broker-2:9092 --command-config prod.properties",
    "penstock --profile prod topic list",
)
def add(
    name: Name,
    bootstrap: Bootstrap,
    command_config: Annotated[
        Path | None,
        typer.Option("--command-config", help="Client configs for TLS and SASL of this cluster."),
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Change a profile that exists.")] = False,
) -> None:
    """Store the brokers of a cluster under a name, with the file of its client configs."""
    from penstock.cli.profiles import Profile, read_profiles, write_profiles

    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        misused(f"{name!r} is no name of a profile: use letters, digits, '.', '_' and '-'")
    if command_config is not None and not command_config.is_file():
        misused(f"cannot read --command-config {command_config}: there is no such file")
    profiles = read_profiles()
    if name in profiles and not replace:
        raise Failure(f"the profile {name} exists: pass --replace, or choose another name")
    config = None if command_config is None else str(command_config.absolute())
    profiles[name] = Profile(bootstrap, config)
    path = write_profiles(profiles)
    print(f"added {name} to {path}: use it with --profile {name} or PENSTOCK_PROFILE={name}")


@app.command("list")
@examples("penstock profile list")
def list_profiles(as_json: AsJson = False) -> None:
    """List profiles, and show which one is in use."""
    from penstock.cli.output import print_rows
    from penstock.cli.profiles import current, read_profiles

    rows = [
        {
            "profile": name,
            "in_use": name == current(),
            "bootstrap": profile.bootstrap,
            "command_config": profile.command_config,
        }
        for name, profile in sorted(read_profiles().items())
    ]
    columns = ("profile", "in_use", "bootstrap", "command_config")
    empty = "no profiles: `penstock profile add NAME --bootstrap HOST:PORT` adds one"
    print_rows(rows, as_json=as_json, columns=columns, empty=empty)


@app.command()
@examples("penstock profile remove prod")
def remove(name: Name) -> None:
    """Remove a profile. The cluster and its file of client configs stay."""
    from penstock.cli.profiles import read_profiles, write_profiles

    profiles = read_profiles()
    if profiles.pop(name, None) is None:
        raise Failure(f"no profile {name}: `penstock profile list` lists the profiles")
    write_profiles(profiles)
    print(f"removed {name}")
