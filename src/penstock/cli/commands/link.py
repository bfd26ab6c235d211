"""`penstock link create|list|describe|pause|resume|promote|failover|delete`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.commands.link_ends import check_exists, delete, failback, failover, promote
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson

app = typer.Typer(
    help="Mirror topics of another cluster at the same offsets, and take over from it.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(metavar="LINK", help="The name of the link.")]


@app.command()
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
    *,
    connection: Connection,
) -> None:
    """Create a link. The brokers of this cluster then mirror the topics of the source that match.

    The topics are read-only here until they are promoted. The source needs rights to read and describe only.
    """
    # Longer than other functions because of its options.
    from penstock.cli.failure import Failure
    from penstock.cli.links import alter_link, list_links

    values: dict[str, str | None] = {**_client_configs(config), "bootstrap.servers": source, "topics": topics}
    if groups:
        values["groups"] = groups
    if prefix:
        values["prefix"] = prefix
    if interval is not None:
        values["interval.ms"] = str(interval)
    if follow_log_start:
        values["log.start"] = "source"
    with connection.direct() as line:
        if name in list_links(line):
            raise Failure(f"link {name} exists: delete it first, or choose another name")
        alter_link(line, name, values)
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
@grouped
def list_command(*, connection: Connection, as_json: AsJson = False) -> None:
    """List the links with their topics and lag."""
    from penstock.cli.links import describe_link, list_links, look
    from penstock.cli.output import print_rows

    rows: list[dict[str, Any]] = []
    with connection.direct() as line:
        names = list_links(line)
        view = look(line) if names else None
        for name in names:
            assert view is not None, "there is a link"
            configs = describe_link(line, name)
            topics = [topic for topic, each in view.topics.items() if each.link == name and each.is_read_only]
            logs = [mirror.log for mirror in view.of(topics)]
            lags = [
                log.source_end_offset - log.end_offset for log in logs if log and log.source_end_offset >= 0
            ]
            errors = {
                each.error for reports in view.reports.values() for each in reports if each.name == name
            }
            rows.append(
                {
                    "link": name,
                    "source": configs.get("bootstrap.servers", ""),
                    "state": "paused" if configs.get("paused") == "true" else "active",
                    "topics": len(topics),
                    "partitions": len(logs),
                    "lag_records": sum(max(0, lag) for lag in lags),
                    "error": "; ".join(sorted(errors - {""})),
                }
            )
    columns = ("link", "source", "state", "topics", "partitions", "lag_records", "error")
    print_rows(rows, as_json=as_json, columns=columns, empty="there are no links")


@app.command()
@grouped
def describe(name: Name, *, connection: Connection, as_json: AsJson = False) -> None:
    """Show the configs of a link, what is in its way, and the mirror of each partition."""
    from penstock.cli.failure import Failure
    from penstock.cli.links import describe_link, look
    from penstock.cli.output import print_json, print_rows

    with connection.direct() as line:
        configs, view = describe_link(line, name), look(line, name)
    if not configs:
        raise Failure(f"there is no link {name}: `penstock link list` lists the links")
    problems: dict[str, str] = {}
    for address, reports in view.reports.items():
        for report in reports:
            if report.error:
                problems[f"broker {address}"] = report.error
            problems.update((f"topic {each.topic}", each.reason) for each in report.problems)
            problems.update(
                (f"group {group}", "has offsets of readers of this cluster, which stay")
                for group in report.foreign_groups
            )
    rows = [_mirror_row(mirror, str(view.topics[mirror.topic].state)) for mirror in view.mirrors]
    if as_json:
        print_json({"link": name, "configs": configs, "problems": problems, "partitions": rows})
        return
    for key, value in configs.items():
        print(f"{key}={value}")
    for about, reason in sorted(problems.items()):
        print(f"{about}: {reason}")
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


def _mirror_row(mirror: Any, state: str) -> dict[str, Any]:
    log = mirror.log
    row = {"topic": mirror.topic, "partition": mirror.partition, "state": state}
    if log is None:
        gone = {"phase": None, "end_offset": None, "source_end": None, "lag_ms": None, "missed": None}
        return {**row, **gone, "reason": "" if state == "promoted" else "no broker reports it"}
    return {
        **row,
        "phase": log.phase,
        "end_offset": log.end_offset,
        "source_end": None if log.source_end_offset < 0 else log.source_end_offset,
        "lag_ms": None if log.lag_ms < 0 else log.lag_ms,
        "missed": log.missed,
        "errors": log.errors,
        "open_transactions": log.open_transactions,
        "last_timestamp_ms": None if log.last_timestamp_ms < 0 else log.last_timestamp_ms,
        "reason": log.reason,
    }


@app.command()
@grouped
def pause(name: Name, *, connection: Connection) -> None:
    """Stop mirroring. The topics stay read-only, and nothing is fetched from the source."""
    _set_paused(connection, name, "true")
    print(f"{name}: paused")


@app.command()
@grouped
def resume(name: Name, *, connection: Connection) -> None:
    """Go on mirroring after a pause, or after a promotion that was not completed."""
    from penstock.cli.links import look, set_state
    from penstock.model.config.mirrored_topics import MirrorState

    _set_paused(connection, name, "false")
    with connection.direct() as line:
        topics = look(line, name).topics
        begun = {n: t for n, t in topics.items() if t.state in (MirrorState.FENCING, MirrorState.PROMOTING)}
        set_state(line, {n: t._replace(state=MirrorState.MIRRORING) for n, t in begun.items()})
    print(f"{name}: resumed")


def _set_paused(connection: Connection, name: str, value: str) -> None:
    from penstock.cli.links import alter_link

    with connection.direct() as line:
        check_exists(line, name)
        alter_link(line, name, {"paused": value})


for _command in (promote, failover, failback, delete):
    app.command()(_command)
