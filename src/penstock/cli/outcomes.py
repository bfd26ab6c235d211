"""What became of each of the things that a command named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from penstock.cli.connection import Cluster, Refused
from penstock.cli.output import print_json

__all__ = ["await_outcomes", "print_described", "print_outcomes"]

Described: TypeAlias = dict[str, Any]


def await_outcomes(
    cluster: Cluster, futures: Mapping[str, Future[Any]], done: str, tolerated: Mapping[str, str]
) -> dict[str, str]:
    """By name, `done` or, where the broker refused for a reason that is `tolerated`, what that is called."""
    outcomes = {}
    for name, future in futures.items():
        outcomes[name] = done
        try:
            cluster.wait(future, name)
        except Refused as refusal:
            if refusal.reason not in tolerated:
                raise
            outcomes[name] = tolerated[refusal.reason]
    return outcomes


def print_outcomes(kind: str, outcomes: Mapping[str, str], as_json: bool) -> None:
    """One line for each thing, which is a `kind` in JSON."""
    if as_json:
        print_json([{kind: name, "outcome": outcome} for name, outcome in outcomes.items()])
    else:
        for name, outcome in outcomes.items():
            print(f"{outcome} {name}")


def print_described(described: Sequence[Described], as_json: bool, show: Callable[[Described], None]) -> None:
    """All of them as JSON, or one after the other as `show` has it."""
    if as_json:
        print_json(described)
    else:
        for each in described:
            show(each)
