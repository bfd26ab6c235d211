"""`penstock partition reassign plan|execute|verify|cancel|list`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.completion import topic_names
from penstock.cli.failure import Failure, misused
from penstock.cli.help_text import examples
from penstock.cli.option_groups import DataOrConnection, grouped
from penstock.cli.options import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT,
    AsJson,
    Bootstrap,
    ClusterIn,
    Patience,
)

app = typer.Typer(help="Move partitions between brokers.", no_args_is_help=True)
reassign = typer.Typer(help="Plan, execute, verify and cancel moves of replicas.", no_args_is_help=True)
app.add_typer(reassign, name="reassign")

Plan = Annotated[Path, typer.Argument(metavar="PLAN", help="File with a plan; - for standard input.")]


@reassign.command()
@examples("penstock partition reassign plan --data ./cluster")
@grouped
def plan(
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="NAME", help="Only this topic; repeatable.", autocompletion=topic_names
        ),
    ] = None,
    away_from: Annotated[
        list[int] | None, typer.Option("--away-from", metavar="N", help="Empty this broker; repeatable.")
    ] = None,
    *,
    where: DataOrConnection,
) -> None:
    """Print a plan with few moves that balances the brokers; changes nothing."""
    from penstock.cli.cluster.moves import plan_moves, written_plan
    from penstock.cli.output import print_json

    with where.connection().direct() as line:
        print_json(written_plan(plan_moves(line, leaving=away_from or (), topics=topics or ())))


@reassign.command()
@examples("penstock partition reassign execute plan.json")
def execute(
    path: Plan,
    throttle: Annotated[
        str | None,
        typer.Option("--throttle", metavar="RATE", help="The highest rate per second and broker, like 50MB."),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all moves are done.")] = False,
    patience: Patience = 3600.0,
    data: ClusterIn = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
) -> None:
    """Start the moves of a plan; the cluster carries them out in the background."""
    from penstock.cli.cluster.broker_home import bootstrap_of
    from penstock.cli.cluster.moves import await_moves, elect_preferred, ongoing_moves, read_plan, start_moves
    from penstock.cli.cluster.throttles import remove_throttle, set_throttle
    from penstock.cli.direct import DirectLine
    from penstock.model.config.units import in_bytes

    rate = None if throttle is None else in_bytes(throttle)
    if rate is not None and rate <= 0:
        misused("--throttle 0 would stop all moves: give a rate like 50MB, or leave it out")
    moves, where = read_plan(path), bootstrap_of(data, bootstrap)
    partitions = [move.partition for move in moves]
    with DirectLine(where, DEFAULT_TIMEOUT) as line:
        if rate is not None:
            set_throttle(line, moves, rate)
        try:
            start_moves(line, moves)
        except Failure:
            if rate is not None:
                remove_throttle(line, partitions, ongoing_moves(line))
            raise
        if not wait:
            print(
                f"started {len(moves)} moves: `penstock partition reassign verify {path}` shows the progress"
            )
            return
        await_moves(line, [move.partition for move in moves], patience)
        elect_preferred(line, partitions)
        if rate is not None:
            remove_throttle(line, partitions, ongoing_moves(line))
    print(f"done {len(moves)} moves")


@reassign.command()
@examples("penstock partition reassign verify plan.json")
@grouped
def verify(
    path: Plan,
    *,
    where: DataOrConnection,
    as_json: AsJson = False,
) -> None:
    """Show the progress of a plan, and remove its throttle when it is done; exit with 1 until then."""
    from penstock.cli.cluster.moves import move_states, ongoing_moves, read_plan
    from penstock.cli.cluster.throttles import remove_throttle
    from penstock.cli.output import print_rows

    moves = read_plan(path)
    with where.connection().direct() as line:
        states, moving = move_states(line, moves), ongoing_moves(line)
        left = sum(each.state != "done" for each in states)
        if not left:
            remove_throttle(line, [move.partition for move in moves], moving)
    rows = [
        {
            "topic": each.move.partition.topic,
            "partition": each.move.partition.partition,
            "state": each.state,
            "wanted": each.move.replicas,
            "replicas": list(each.replicas),
        }
        for each in states
    ]
    columns = ("topic", "partition", "state", "wanted", "replicas")
    print_rows(rows, as_json=as_json, columns=columns, empty="the plan moves nothing")
    if left:
        raise Failure(f"{left} of {len(states)} moves are not done")


@reassign.command()
@examples("penstock partition reassign cancel")
@grouped
def cancel(
    path: Annotated[
        Path | None, typer.Argument(metavar="[PLAN]", help="Only the moves of this plan.")
    ] = None,
    *,
    where: DataOrConnection,
) -> None:
    """Cancel unfinished moves, of a plan or all, and remove the throttle; finished moves stay."""
    from penstock.cli.cluster.moves import cancel_moves, ongoing_moves, read_plan
    from penstock.cli.cluster.throttles import remove_throttle

    planned = None if path is None else {move.partition for move in read_plan(path)}
    with where.connection().direct() as line:
        moving = [each for each in ongoing_moves(line) if planned is None or each in planned]
        if moving:
            cancel_moves(line, moving)
        remove_throttle(line, moving if planned is None else planned, ongoing_moves(line))
    print(f"cancelled {len(moving)} moves")


@reassign.command("list")
@examples("penstock partition reassign list")
@grouped
def list_moves(
    *,
    where: DataOrConnection,
    as_json: AsJson = False,
) -> None:
    """List the moves in progress."""
    from penstock.cli.cluster.moves import ongoing_moves
    from penstock.cli.output import print_rows

    with where.connection().direct() as line:
        moving = ongoing_moves(line)
    rows: list[dict[str, Any]] = [
        {
            "topic": partition.topic,
            "partition": partition.partition,
            "replicas": ongoing.replicas,
            "adding": ongoing.adding_replicas,
            "removing": ongoing.removing_replicas,
            "reason": ongoing.reason or None,
        }
        for partition, ongoing in sorted(moving.items())
    ]
    columns = ("topic", "partition", "replicas", "adding", "removing", "reason")
    print_rows(rows, as_json=as_json, columns=columns, empty="no moves in progress")
