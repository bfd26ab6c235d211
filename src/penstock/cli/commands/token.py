"""`penstock token list|create|renew|expire`: delegation tokens."""

from __future__ import annotations

from base64 import b64decode
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, AsJson, Bootstrap, Timeout

app = typer.Typer(
    help="Create, renew, end and list delegation tokens, with which clients log in as their owner.",
    no_args_is_help=True,
)

_LOGIN = """\
A client logs in with SCRAM and these configs:
  sasl.mechanism=SCRAM-SHA-512
  sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \
username="{token}" password="{hmac}" tokenauth="true";"""
Token = Annotated[str, typer.Argument(metavar="TOKEN", help="The id of the token.")]
Owner = Annotated[
    str | None, typer.Option("--owner", help="The principal that the token is for.", show_default="yourself")
]


@app.command("list")
@examples("penstock token list")
def list_command(
    owners: Annotated[
        list[str] | None,
        typer.Option("--owner", help="Only tokens of this owner or renewer, such as User:alice. Repeatable."),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """List the tokens that you may see, without their HMACs."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_rows
    from penstock.cli.rights import principal_of
    from penstock.net.token_client import list_tokens

    named = [principal_of(owner) for owner in owners or ()]
    with DirectLine(bootstrap, timeout) as line:
        found = line.run(lambda cluster: list_tokens(cluster, named))
    rows = [{key: value for key, value in row.items() if key != "hmac"} for row in found]
    if not as_json:
        rows = [
            {
                **row,
                "renewers": ", ".join(row["renewers"]),
                "expires": _time(row["expires_ms"]),
                "renewable_until": _time(row["max_ms"]),
            }
            for row in rows
        ]
    columns = ("token", "owner", "requester", "renewers", "expires", "renewable_until")
    print_rows(rows, as_json=as_json, columns=columns, empty="there are no delegation tokens")


@app.command()
@examples("penstock token create --renewer User:scheduler --max-lifetime 2d")
def create(
    owner: Owner = None,
    renewers: Annotated[
        list[str] | None,
        typer.Option("--renewer", help="A principal that may renew and end the token. Repeatable."),
    ] = None,
    max_lifetime: Annotated[
        str | None,
        typer.Option(
            "--max-lifetime", help="For example 12h or 2d.", show_default="delegation.token.max.lifetime.ms"
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Create a token, and print its secret HMAC."""
    from penstock.cli.direct import DirectLine
    from penstock.cli.output import print_json
    from penstock.cli.rights import principal_of
    from penstock.net.token_client import create_token

    lifetime_ms = _milliseconds("--max-lifetime", max_lifetime)
    of = None if owner is None else principal_of(owner)
    by = [principal_of(renewer) for renewer in renewers or ()]
    with DirectLine(bootstrap, timeout) as line:
        made = line.run(lambda cluster: create_token(cluster, of, by, lifetime_ms))
    if as_json:
        print_json(made)
        return
    print(f"{made['token']}: created a token of {made['owner']}, valid until {_time(made['expires_ms'])}")
    print(f"It can be renewed until {_time(made['max_ms'])}. Keep the password secret.")
    print(_LOGIN.format(**made))


@app.command()
@examples("penstock token renew 6vxQ2bVgRUG4Fyc1S0YFdw")
def renew(
    token: Token,
    period: Annotated[
        str | None,
        typer.Option(
            "--period", help="For how long, from now on.", show_default="delegation.token.expiry.time.ms"
        ),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """Renew a token. Its owner and its renewers may."""
    from penstock.cli.direct import DirectLine
    from penstock.net.token_client import renew_token

    period_ms = _milliseconds("--period", period)
    with DirectLine(bootstrap, timeout) as line:
        hmac = _hmac(line, token)
        expires_ms = line.run(lambda cluster: renew_token(cluster, token, hmac, period_ms))
    print(f"{token}: valid until {_time(expires_ms)}")


@app.command()
@examples("penstock token expire 6vxQ2bVgRUG4Fyc1S0YFdw")
def expire(
    token: Token,
    after: Annotated[
        str | None,
        typer.Option("--after", help="End it later, for example in 1h.", show_default="now"),
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT,
) -> None:
    """End a token. Its owner and its renewers may. The connections of an ended token are closed."""
    from penstock.cli.direct import DirectLine
    from penstock.net.token_client import expire_token

    period_ms = _milliseconds("--after", after)
    with DirectLine(bootstrap, timeout) as line:
        hmac = _hmac(line, token)
        expires_ms = line.run(lambda cluster: expire_token(cluster, token, hmac, period_ms))
    print(f"{token}: removed" if period_ms < 0 else f"{token}: valid until {_time(expires_ms)}")


def _hmac(line: Any, token: str) -> bytes:
    """The HMAC of a token, which the requests need. It never is an argument: other users see those."""
    from penstock.net.token_client import list_tokens

    found = [row["hmac"] for row in line.run(list_tokens) if row["token"] == token]
    if not found:
        misused(f"there is no delegation token {token} that you may see: see `penstock token list`")
    return b64decode(found[0])


def _milliseconds(option: str, text: str | None) -> int:
    """-1 leaves the time to the brokers."""
    if text is None:
        return -1
    from penstock.cli.archives import duration_ms

    return duration_ms(option, text)


def _time(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError):
        return "forever"
