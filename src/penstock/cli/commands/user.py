"""`penstock user list|set|remove`: SCRAM credentials."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failure import misused
from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, AsJson, Bootstrap, Timeout

app = typer.Typer(help="List and change users with SCRAM passwords.", no_args_is_help=True)

_SALT_BYTES = 16
_BOTH = "SCRAM-SHA-256,SCRAM-SHA-512"
User = Annotated[str, typer.Argument(metavar="USER", help="The name of the user, without User:.")]
Mechanisms = Annotated[str, typer.Option("--mechanism", help="SCRAM mechanisms, comma-separated.")]


@app.command("list")
def list_command(
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: Timeout = DEFAULT_TIMEOUT, as_json: AsJson = False
) -> None:
    """List users and their mechanisms."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_rows
    from penstock.cli.rights import users

    with DirectLine(bootstrap, timeout) as line:
        rows = users(line)
    columns = ("user", "mechanism", "iterations")
    print_rows(rows, as_json=as_json, columns=columns, empty="there are no users with SCRAM passwords")


@app.command("set")
def set_command(
    user: User,
    password_file: Annotated[
        Path | None, typer.Option("--password-file", help="File with the password; - is standard input.")
    ] = None,
    mechanism: Mechanisms = _BOTH,
    iterations: Annotated[int, typer.Option("--iterations", min=4096, max=16384)] = 4096,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Create a user or change the password. Without --password-file the command asks for the password."""
    from penstock.broker.base.system_ports import SystemRng
    from penstock.cli.direct import DirectLine
    from penstock.cli.rights import set_password

    names, password = _mechanisms(mechanism), _password(password_file)
    with DirectLine(bootstrap, timeout) as line:
        for name in names:
            set_password(line, user, name, password, iterations, SystemRng().token(_SALT_BYTES))
    print(f"{user}: set the password for {', '.join(names)}")


@app.command()
def remove(
    user: User,
    mechanism: Mechanisms = _BOTH,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Remove the password of a user."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.rights import remove_user, users

    names = _mechanisms(mechanism)
    with DirectLine(bootstrap, timeout) as line:
        known = {row["mechanism"] for row in users(line) if row["user"] == user}
        if not known & set(names):
            misused(f"{user} has no password for {', '.join(names)}: see `penstock user list`")
        remove_user(line, user, [name for name in names if name in known])
    print(f"{user}: removed the password for {', '.join(name for name in names if name in known)}")


def _mechanisms(text: str) -> list[str]:
    from penstock.cli.rights import MECHANISMS

    names = [name.strip().upper() for name in text.split(",")]
    for name in names:
        if name not in MECHANISMS:
            misused(f"{name!r} is not a SCRAM mechanism: one of {', '.join(MECHANISMS)}")
    return names


def _password(path: Path | None) -> str:
    """The password from a file, from standard input, or from the terminal; never from the command line."""
    if path is None:
        text: str = typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    elif str(path) == "-":
        text = sys.stdin.readline().rstrip("\n")
    else:
        text = path.read_text().rstrip("\n")
    if not text:
        misused("the password is empty")
    return text
