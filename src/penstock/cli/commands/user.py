"""`penstock user list|set|remove|revoke`: SCRAM credentials, and the connections of users."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, AsJson, Bootstrap, Timeout

app = typer.Typer(help="List and change users with SCRAM passwords.", no_args_is_help=True)

_NO_PASSWORD = """\
{name} has no password in the metadata. A certificate, a token or a password of a config file lets it connect
again:
  certificate   revoke it at its authority, and set ssl.crl.location
  token         disable the user at the issuer
  config file   remove user_{name} from sasl.jaas.config, and restart the brokers
  any of them   penstock acl add --deny User:{name} all 'topic:*'"""
User = Annotated[str, typer.Argument(metavar="USER", help="The name of the user, without User:.")]
Mechanisms = Annotated[
    str | None, typer.Option("--mechanism", help="SCRAM mechanisms, comma-separated.", show_default="all")
]


@app.command("list")
@examples("penstock user list")
def list_command(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False
) -> None:
    """List users and their mechanisms."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_rows
    from penstock.net.access_client import list_users

    with DirectLine(bootstrap, timeout) as line:
        rows = line.run(list_users)
    columns = ("user", "mechanism", "iterations")
    print_rows(rows, as_json=as_json, columns=columns, empty="there are no users with SCRAM passwords")


@app.command("set")
@examples("penstock user set alice")
def set_command(
    user: User,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="File with the password; - is standard input.")
    ] = None,
    mechanism: Mechanisms = None,
    iterations: Annotated[int, typer.Option("--iterations", min=4096, max=16384)] = 4096,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Create a user or change the password. Without --password-file the command asks for the password."""
    from penstock.cli.direct import DirectLine
    from penstock.net.access_client import set_password

    names, password = _mechanisms(mechanism), _password(password_file)
    with DirectLine(bootstrap, timeout) as line:
        for name in names:
            made = partial(set_password, user=user, mechanism=name, password=password)
            line.run(partial(made, iterations=iterations))
    print(f"{user}: set the password for {', '.join(names)}")


@app.command()
@examples("penstock user remove alice")
def remove(
    user: User,
    mechanism: Mechanisms = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Remove the password of a user."""
    from penstock.cli.direct import DirectLine
    from penstock.net.access_client import list_users, remove_user

    names = _mechanisms(mechanism)
    with DirectLine(bootstrap, timeout) as line:
        known = {row["mechanism"] for row in line.run(list_users) if row["user"] == user}
        if not known & set(names):
            misused(f"{user} has no password for {', '.join(names)}: see `penstock user list`")
        line.run(lambda cluster: remove_user(cluster, user, [name for name in names if name in known]))
    print(f"{user}: removed the password for {', '.join(name for name in names if name in known)}")


@app.command()
@examples("penstock user revoke alice")
def revoke(user: User, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT) -> None:
    """Remove all passwords of a user, and close its connections at all brokers."""
    import time

    from penstock.cli.client_config import client_user
    from penstock.cli.direct import DirectLine
    from penstock.net.access_client import revoke_user

    name = user.removeprefix("User:")
    if not name:
        misused("name the user to revoke")
    if name == client_user():
        misused(f"this command is connected as {name}: use the config of another administrator")
    with DirectLine(bootstrap, timeout) as line:
        known = line.run(lambda cluster: revoke_user(cluster, name, time.time_ns() // 1_000_000))
    if known:
        print(f"{name}: removed the password for {', '.join(known)}")
    print(f"{name}: closed all connections")
    if not known:
        print(_NO_PASSWORD.format(name=name))


def _mechanisms(text: str | None) -> list[str]:
    from penstock.security.mechanisms import scrams

    if text is None:
        return list(scrams())
    names = [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in scrams():
            misused(f"{name!r} is not a SCRAM mechanism: one of {', '.join(scrams())}")
    return names


def _password(path: Path | None) -> str:
    """The password from a file, from standard input, or from the terminal; never from the command line."""
    if path is None:
        text: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    elif str(path) == "-":
        text = sys.stdin.readline().rstrip("\n")
    else:
        from penstock.cli.private_files import warn_if_exposed

        warn_if_exposed(path, "--password-file")
        text = path.read_text().rstrip("\n")
    if not text:
        misused("the password is empty")
    return text
