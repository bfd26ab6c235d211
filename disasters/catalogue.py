"""A disaster as data: a name, a description, and the script that does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from disasters.cluster import Shape
from disasters.scene import Scene

__all__ = ["Catalogue", "Disaster", "Script"]

Script: TypeAlias = Callable[[Scene], None]


@dataclass(frozen=True, slots=True)
class Disaster:
    #: unique, for the command line
    name: str
    #: row of the table of disasters that destroyed data once; 0 for those that never did
    row: int
    #: one sentence for the report
    done: str
    script: Script
    #: the documented action, taken if partitions wait or a broker refuses to start
    remedy: Script | None = None
    shape: Shape = field(default_factory=Shape)
    #: kinds of broker that it makes sense for
    systems: tuple[str, ...] = ("penstock", "kafka")


class Catalogue:
    """Collects the disasters of a module, in the order of their scripts."""

    def __init__(self) -> None:
        self.disasters: list[Disaster] = []

    def __call__(
        self,
        name: str,
        done: str,
        *,
        row: int = 0,
        remedy: Script | None = None,
        shape: Shape | None = None,
        systems: tuple[str, ...] = ("penstock", "kafka"),
    ) -> Callable[[Script], Script]:
        def add(script: Script) -> Script:
            shaped = shape or Shape()
            self.disasters.append(Disaster(name, row, done, script, remedy, shaped, systems))
            return script

        return add
