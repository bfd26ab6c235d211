"""`penstock transaction list|describe|find-hanging|abort|end`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.completion import topic_names
from penstock.cli.confirmation import Yes, confirm
from penstock.cli.failure import misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import Connection, grouped
from penstock.cli.options import AsJson

app = typer.Typer(help="List and describe transactions, and end those that hang.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="A transactional id.")]
Topic = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=topic_names)]
_MINUTE_MS = 60_000
#: the default of transaction.max.timeout.ms: ordinary transactions are not older
_ORPHAN_MS = 15 * _MINUTE_MS


@app.command("list")
@examples("penstock transaction list --state Ongoing", "penstock transaction list --orphans")
@grouped
def list_command(
    state: Annotated[
        list[str] | None, typer.Option("--state", metavar="STATE", help="Only in this state; repeatable.")
    ] = None,
    longer_than: Annotated[
        int | None, typer.Option("--longer-than", metavar="MS", help="Only open for longer than this.")
    ] = None,
    orphans: Annotated[
        bool,
        typer.Option(
            "--orphans",
            help="Two-phase transactions without an outcome, open for 15 minutes or --longer-than.",
        ),
    ] = False,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """List transactional ids with their coordinators and states."""
    from penstock.cli.output import print_rows
    from penstock.cli.transactions import list_transactions
    from penstock.wire.apis.list_transactions import ListTransactionsRequest

    if orphans:
        _list_orphans(connection, _ORPHAN_MS if longer_than is None else longer_than, as_json)
        return
    longer_than = -1 if longer_than is None else longer_than

    request = ListTransactionsRequest(state_filters=state or [], duration_filter=longer_than)
    with connection.direct() as line:
        rows = list_transactions(line, request)
    columns = ("transactional_id", "coordinator", "producer_id", "state")
    print_rows(rows, as_json=as_json, columns=columns, empty="there are no such transactions")


def _list_orphans(connection: Connection, longer_than: int, as_json: bool) -> None:
    from time import time

    from penstock.cli.output import print_rows
    from penstock.cli.two_phase import orphans

    with connection.direct() as line:
        rows = orphans(line, int(time() * 1000), longer_than)
    columns = tuple(rows[0]) if rows else ()
    print_rows(rows, as_json=as_json, columns=columns, empty="each two-phase transaction has an outcome")


@app.command()
@examples("penstock transaction describe billing-1")
@grouped
def describe(
    transactional_id: Id,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Show the state, the producer and the partitions of a transactional id."""
    from penstock.cli.output import print_rows
    from penstock.cli.transactions import describe as describe_transaction
    from penstock.twophase.outcomes import NO_TIMEOUT_MS

    with connection.direct() as line:
        coordinator, found = describe_transaction(line, transactional_id)
    started = found.transaction_start_time_ms
    row: dict[str, Any] = {
        "coordinator": coordinator,
        "transactional_id": transactional_id,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.transaction_state,
        "timeout_ms": found.transaction_timeout_ms,
        "two_phase": found.transaction_timeout_ms == NO_TIMEOUT_MS,
        "start_ms": None if started < 0 else started,
        "partitions": ",".join(f"{t.topic}-{index}" for t in found.topics for index in t.partitions),
    }
    print_rows([row], as_json=as_json, columns=tuple(row), empty="")


@app.command("find-hanging")
@examples("penstock transaction find-hanging")
@grouped
def find_hanging_command(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", help="Only this topic; repeatable.", autocompletion=topic_names),
    ] = None,
    max_timeout: Annotated[
        int, typer.Option("--max-transaction-timeout", metavar="MINUTES", help="transaction.max.timeout.ms.")
    ] = 15,
    *,
    connection: Connection,
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition, but not at a coordinator."""
    from time import time

    from penstock.cli.output import print_rows
    from penstock.cli.transactions import find_hanging

    now_ms = int(time() * 1000)
    with connection.direct() as line:
        hanging = find_hanging(line, topic or (), now_ms, max_timeout * _MINUTE_MS)
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "producer_id": each.producer.producer_id,
            "producer_epoch": each.producer.producer_epoch,
            "coordinator_epoch": each.producer.coordinator_epoch,
            "start_offset": each.producer.current_txn_start_offset,
            "last_timestamp": each.producer.last_timestamp,
            "minutes": (now_ms - each.producer.last_timestamp) // _MINUTE_MS,
        }
        for each in hanging
    ]
    columns = tuple(rows[0]) if rows else ()
    print_rows(rows, as_json=as_json, columns=columns, empty="no transaction hangs")


@app.command()
@examples("penstock transaction abort orders 0 4711")
@grouped
def abort(
    topic: Topic,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    start_offset: Annotated[int, typer.Argument(metavar="START_OFFSET", min=0)],
    *,
    connection: Connection,
) -> None:
    """Abort the transaction that is open from START_OFFSET on, for one that `find-hanging` has found."""
    from penstock.cli.transactions import abort as abort_transaction

    with connection.direct() as line:
        aborted = abort_transaction(line, topic, partition, start_offset)
    print(f"aborted the transaction of producer {aborted.producer.producer_id} in {topic}-{partition}")


@app.command()
@examples("penstock transaction end loader-7 --commit")
@grouped
def end(
    transactional_id: Id,
    commit: Annotated[
        bool | None, typer.Option("--commit/--abort", help="The outcome.", show_default=False)
    ] = None,
    yes: Yes = False,
    *,
    connection: Connection,
) -> None:
    """End the open transaction of ID, in the place of an external coordinator that is gone.

    The outcome must be the one that the external coordinator has decided. Its later requests are refused.
    """
    from penstock.cli.two_phase import end as end_transaction

    if commit is None:
        misused("name the outcome: --commit or --abort")
    outcome = "commit" if commit else "abort"
    confirm(f"{outcome.capitalize()} the transaction of {transactional_id!r}", connection.bootstrap, yes)
    with connection.direct() as line:
        end_transaction(line, transactional_id, committed=commit)
    print(f"{'committed' if commit else 'aborted'} the transaction of {transactional_id!r}")
