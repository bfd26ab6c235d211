"""The outcomes of a command for each of the names that it was given."""

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
    """The outcome per name: `done`, or the word for a `tolerated` error."""
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
    """Print one line per name; in JSON each is an object with the key `kind`."""
    if as_json:
        print_json([{kind: name, "outcome": outcome} for name, outcome in outcomes.items()])
    else:
        for name, outcome in outcomes.items():
            print(f"{outcome} {name}")


def print_described(described: Sequence[Described], as_json: bool, show: Callable[[Described], None]) -> None:
    """Print all as JSON, or each with `show`."""
    if as_json:
        print_json(described)
    else:
        for each in described:
            show(each)
