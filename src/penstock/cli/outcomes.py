"""The outcomes of a command for each of the names that it was given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeAlias

from penstock.cli.connection import Cluster, Refused
from penstock.cli.output import print_json

__all__ = ["await_outcomes", "print_described", "print_outcomes", "print_report"]

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
    document = [{kind: name, "outcome": outcome} for name, outcome in outcomes.items()]
    print_report(document, [f"{outcome} {name}" for name, outcome in outcomes.items()], as_json)


def print_report(document: object, lines: Iterable[str], as_json: bool) -> None:
    """Print `document` as JSON, or else `lines`."""
    if as_json:
        print_json(document)
    else:
        for line in lines:
            print(line)


def print_described(described: Sequence[Described], as_json: bool, show: Callable[[Described], None]) -> None:
    """Print all as JSON, or each with `show`."""
    if as_json:
        print_json(described)
    else:
        for each in described:
            show(each)
