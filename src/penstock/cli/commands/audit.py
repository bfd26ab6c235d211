"""`penstock audit verify`: checks the chains of audit events in files and in the audit topic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.failure import FAILED, Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson

app = typer.Typer(help="Check audit events.", no_args_is_help=True)
#: the findings that JSON has
_FINDINGS_MAX = 100


@app.callback()
def audit() -> None:
    """Check audit events."""


@app.command("verify")
@examples("penstock audit verify --topic")
@grouped
def verify_events(
    *,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="An audit file, with its older ones (FILE.1 ...); or all files, oldest first.",
        ),
    ] = None,
    topic: Annotated[bool, typer.Option("--topic", help="Check the topic __audit instead of files.")] = False,
    key_file: Annotated[
        Path | None, typer.Option("--key-file", help="The key of the chains (penstock.audit.hash.key.file).")
    ] = None,
    heads: Annotated[
        list[Path] | None,
        typer.Option(
            "--head",
            metavar="FILE",
            help="Events that must be there: audit-*.head of a data directory, or an earlier output of "
            "--json; repeatable.",
        ),
    ] = None,
    syslog: Annotated[
        bool, typer.Option("--syslog", help="The files are those of a syslog server, with other lines, too.")
    ] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Events at the beginning may be missing: they are archived.")
    ] = False,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Find events that were changed, removed, moved or added; exit with 1 at the first one."""
    from penstock.audit.verification import Verifier
    from penstock.cli.audit_reading import file_entries, known_heads, topic_entries

    if bool(paths) == topic:
        misused("name the files to check, or give --topic")
    key = key_file.read_bytes().strip() if key_file is not None else b""
    known = [head for path in heads or () for head in known_heads(path, key)]
    repeats = topic or syslog
    verifier = Verifier(key, repeats=repeats, may_begin_late=partial or topic, known=known)
    entries = topic_entries(connection, key) if topic else file_entries(paths or [], key, syslog=syslog)
    for entry in entries:
        verifier.take(entry)
    verifier.end()
    _report(verifier, as_json)


def _report(verifier: Any, as_json: bool) -> None:
    findings = verifier.findings
    if as_json:
        from penstock.cli.output import print_json

        print_json(
            {
                **verifier.summary(),
                "ok": not findings,
                "findings": [each._asdict() for each in findings[:_FINDINGS_MAX]],
                "heads": [head._asdict() for head in verifier.heads.values()],
            }
        )
        if findings:
            raise typer.Exit(FAILED)
        return
    if findings:
        first = findings[0]
        others = f" (and {len(findings) - 1} more: --json lists them)" if len(findings) > 1 else ""
        raise Failure(f"{first.place}: {first.text}{others}")
    if not verifier.events:
        raise Failure("there is no audit event")
    dropped = f", {verifier.dropped} dropped by limits" if verifier.dropped else ""
    last = list(verifier.heads.values())[-1]
    chains = len(verifier.heads)
    print(f"ok: {verifier.events} events in {chains} chain{'s' if chains > 1 else ''}{dropped}")
    print(f"last: {last.chain} {last.seq} {last.hash}")
