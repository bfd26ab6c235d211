"""`penstock link create|list|describe|pause|resume|promote|failover|delete`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.commands.link_ends import delete, failback, failover, promote
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson

app = typer.Typer(
    help="Mirror topics of another cluster at the same offsets, and take over from it.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="LINK", help="The name of the link.")]


@app.command()
@examples("penstock link create west --from west-1:9092 --topics 'orders*'")
@grouped
def create(
    name: Name,
    source: Annotated[
        str, typer.Option("--from", metavar="HOST:PORT[,...]", help="Brokers of the source cluster.")
    ],
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Client configs for the source: TLS and SASL."),
    ] = None,
    topics: Annotated[
        str,
        typer.Option(
            "--topics", metavar="PATTERN[,...]", help="Names with * and ?; with ! those to leave out."
        ),
    ] = "*",
    groups: Annotated[
        str, typer.Option("--groups", metavar="PATTERN[,...]", help="Groups whose offsets are mirrored.")
    ] = "",
    prefix: Annotated[
        str, typer.Option("--prefix", help="What the names of the topics begin with here.")
    ] = "",
    interval: Annotated[
        int | None, typer.Option("--interval-ms", help="How often topics and offsets are compared.")
    ] = None,
    follow_log_start: Annotated[
        bool, typer.Option("--follow-log-start", help="Delete here what DeleteRecords deletes at the source.")
    ] = False,
    acls: Annotated[
        bool, typer.Option("--acls", help="Mirror the ACLs about topics and groups that are mirrored.")
    ] = False,
    quotas: Annotated[
        str, typer.Option("--quotas", metavar="PATTERN[,...]", help="Users whose quotas are mirrored.")
    ] = "",
    *,
    connection: Connection,
) -> None:
    """Create a link. The brokers of this cluster then mirror the topics of the source that match.

    The topics are read-only here until they are promoted. The source needs rights to read and describe only;
    with --acls to describe the cluster, too, and with --quotas to describe its configs.
    """
    # Longer than other functions because of its options.
    from penstock.net.link_client import create_link, link_values

    values = link_values(
        source,
        topics=topics,
        groups=groups,
        prefix=prefix,
        interval_ms=interval,
        follow_log_start=follow_log_start,
        acls=acls,
        quotas=quotas,
        security=_client_configs(config),
    )
    with connection.direct() as line:
        line.run(lambda cluster: create_link(cluster, name, values))
    print(f"{name}: created; `penstock link describe {name}` shows its progress")


def _client_configs(path: Path | None) -> dict[str, str]:
    if path is None:
        return {}
    import os

    from penstock.cli.failure import misused
    from penstock.model.config.files import property_pairs
    from penstock.model.config.placeholders import resolved
    from penstock.security.client_names import SECURITY_PREFIXES

    try:
        pairs = dict(property_pairs(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        misused(f"cannot read --config {path}: {error}")
    values = resolved(pairs, lambda each: Path(each).read_text(encoding="utf-8"), os.environ)
    return {key: value for key, value in values.items() if key.startswith(SECURITY_PREFIXES)}


@app.command("list")
@examples("penstock link list")
@grouped
def list_command(*, connection: Connection, as_json: AsJson = False) -> None:
    """List the links with their topics and lag."""
    from dataclasses import asdict

    from penstock.cli.output import print_rows
    from penstock.net.link_reports import summaries

    with connection.direct() as line:
        rows = [asdict(each) for each in line.run(summaries)]
    columns = ("link", "source", "state", "topics", "partitions", "lag_records", "error")
    print_rows(rows, as_json=as_json, columns=columns, empty="there are no links")


@app.command()
@examples("penstock link describe west")
@grouped
def describe(name: Name, *, connection: Connection, as_json: AsJson = False) -> None:
    """Show the configs of a link, what is in its way, and the mirror of each partition."""
    from dataclasses import asdict

    from penstock.cli.output import print_json, print_rows
    from penstock.net.link_reports import describe_link

    with connection.direct() as line:
        found = line.run(lambda cluster: describe_link(cluster, name))
    if as_json:
        print_json(asdict(found))
        return
    for key, value in found.configs.items():
        print(f"{key}={value}")
    for about, reason in found.problems.items():
        print(f"{about}: {reason}")
    rows = [asdict(each) for each in found.partitions]
    columns = (
        "topic",
        "partition",
        "state",
        "phase",
        "end_offset",
        "source_end",
        "lag_ms",
        "missed",
        "reason",
    )
    print_rows(rows, as_json=False, columns=columns, empty="nothing is mirrored yet")


@app.command()
@examples("penstock link pause west")
@grouped
def pause(name: Name, *, connection: Connection) -> None:
    """Stop mirroring. The topics stay read-only, and nothing is fetched from the source."""
    from penstock.net.link_client import pause_link

    with connection.direct() as line:
        line.run(lambda cluster: pause_link(cluster, name))
    print(f"{name}: paused")


@app.command()
@examples("penstock link resume west")
@grouped
def resume(name: Name, *, connection: Connection) -> None:
    """Go on mirroring after a pause, or after a promotion that was not completed."""
    from penstock.net.link_client import resume_link

    with connection.direct() as line:
        line.run(lambda cluster: resume_link(cluster, name))
    print(f"{name}: resumed")


for _command in (promote, failover, failback, delete):
    app.command()(_command)
