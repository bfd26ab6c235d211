"""Clocks of several brokers that are wrong together, with a retention of one day."""

from __future__ import annotations

from typing import Final

from disasters.catalogue import Catalogue
from disasters.cluster import Shape
from disasters.scene import VICTIM, Scene
from disasters.system import Conditions

__all__ = ["CLOCKS"]

CLOCKS: Final = Catalogue()
_DAY_MS: Final = 86_400_000
#: enough for several rounds of retention, which looks every second
_ROUNDS_S: Final = 6.0
#: how long the clocks are wrong that are corrected again
_STEP_S: Final = 20.0
#: with the victim a majority
_TWO: Final = (VICTIM, 3)
_CLOCK_FILE: Final = "clock-checkpoint"


def _stopped(scene: Scene) -> None:
    scene.create(configs={"retention.ms": str(_DAY_MS)})
    scene.write()
    scene.commit()
    scene.stop_all()


def _start_two_days_ahead(scene: Scene) -> None:
    for node in _TWO:
        scene.cluster.conditions[node] = Conditions(clock_ms=2 * _DAY_MS)
    scene.start_first(*_TWO)
    scene.wait_whole(scene.cluster.system.whole_s)
    scene.lead()
    scene.watch(_ROUNDS_S)


@CLOCKS("clocks-of-two-ahead", "clocks of two of three brokers two days ahead, retention of one day", row=9)
def clocks_of_two_ahead(scene: Scene) -> None:
    _stopped(scene)
    _start_two_days_ahead(scene)


@CLOCKS(
    "clocks-of-all-step",
    "all clocks two days ahead for 20 s while the brokers run, and back",
    row=9,
    shape=Shape(moving_clocks=True),
)
def clocks_of_all_step(scene: Scene) -> None:
    scene.create(configs={"retention.ms": str(_DAY_MS)})
    scene.write()
    scene.commit()
    scene.cluster.set_clocks(2 * _DAY_MS)
    scene.watch(_STEP_S)
    scene.write(90)
    scene.cluster.set_clocks(0)
    scene.watch(_ROUNDS_S)


@CLOCKS(
    "clock-files-removed",
    "files with the time before the stop removed on two of three brokers, their clocks two days ahead",
    row=9,
    systems=("penstock",),
)
def clock_files_removed(scene: Scene) -> None:
    _stopped(scene)
    for node in _TWO:
        for directory in scene.disk(node).directories:
            (directory / _CLOCK_FILE).unlink(missing_ok=True)
    _start_two_days_ahead(scene)


@CLOCKS(
    "clock-files-rolled-back",
    "files with the time before the stop older on all brokers, all clocks two days ahead",
    row=9,
    systems=("penstock",),
)
def clock_files_rolled_back(scene: Scene) -> None:
    _stopped(scene)
    paths = [d / _CLOCK_FILE for node in scene.cluster.nodes for d in scene.disk(node).directories]
    older = {path: path.read_bytes() for path in paths if path.exists()}
    assert older, "no broker has saved its time"
    scene.start_all()
    scene.write(90)
    scene.stop_all()
    for path, content in older.items():
        path.write_bytes(content)
    for node in scene.cluster.nodes:
        scene.cluster.conditions[node] = Conditions(clock_ms=2 * _DAY_MS)
    scene.start_all()
    scene.watch(_ROUNDS_S)
