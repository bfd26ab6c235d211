"""Groups of options that several commands share.

Typer has one parameter per option. `grouped` lets a command take a group of options as one parameter: the
fields of a NamedTuple, which are options in the order of the fields, where the command has the parameter.

    @app.command()
    @grouped
    def describe(names: Names, *, connection: Connection, as_json: AsJson = False) -> None: ...
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import typer

from penstock.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT, Bootstrap, ClusterIn, Timeout

if TYPE_CHECKING:
    from penstock.cli.connection import Cluster
    from penstock.cli.direct import DirectLine

__all__ = ["Connection", "DataOrConnection", "NewOffset", "grouped"]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """Replace the parameters of `command` that are NamedTuples by their fields, which have defaults."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if hasattr(hint, "_fields")}
    parameters: list[inspect.Parameter] = []
    for name, own in inspect.signature(command).parameters.items():
        if name in groups:
            fields = get_type_hints(groups[name], include_extras=True)
            defaults = groups[name]._field_defaults
            parameters += [_parameter(field, fields[field], default) for field, default in defaults.items()]
        else:
            parameters.append(_parameter(name, hints[name], own.default))

    @wraps(command)
    def called(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{field: given.pop(field) for field in group._fields})
        command(**given)

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {each.name: each.annotation for each in parameters}
    return called


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


class Connection(NamedTuple):
    """The cluster that a command uses, of any Kafka vendor."""

    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
    timeout: Timeout = DEFAULT_TIMEOUT

    def cluster(self, *, patient: bool = False) -> Cluster:
        """The cluster, through librdkafka. A `patient` one is tried until the timeout, and says so."""
        from penstock.cli.connection import Cluster

        return Cluster(self.bootstrap, self.timeout, patient=patient)

    def direct(self) -> DirectLine:
        """Connections for requests that librdkafka does not support; to be used in a `with` statement."""
        from penstock.cli.direct import DirectLine

        return DirectLine(self.bootstrap, self.timeout)


class DataOrConnection(NamedTuple):
    """The cluster that a command uses: the one in a directory of this machine, or any other one."""

    data: ClusterIn = None
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP
    timeout: Timeout = DEFAULT_TIMEOUT

    def connection(self) -> Connection:
        """The connection, to the running brokers of the directory if there is one."""
        from penstock.cli.cluster.broker_home import bootstrap_of

        return Connection(bootstrap_of(self.data, self.bootstrap), self.timeout)


class NewOffset(NamedTuple):
    """The offset to which a command moves a group."""

    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the log start.")] = False
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the log end.")] = False
    to_offset: Annotated[int | None, typer.Option(min=0, help="To this offset.")] = None
    to_datetime: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="To the first message at or after this time: ISO 8601, or ms since 1970."
        ),
    ] = None
