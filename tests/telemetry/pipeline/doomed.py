"""`penstock` in a process that kills itself and its JVM, or its JVM alone, at a point of its work.

    python -m tests.telemetry.pipeline.doomed all|jvm before|SECONDS CLASS.METHOD CALL ARGUMENT...

Death comes before a call of a method of the driver, or so many seconds after it: a machine that stands still
holds up its work and its end alike. CALL is the number of the call, or its first argument. For `all` the
process must lead a process group of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from threading import Timer
from typing import Any

from penstock.cli import main
from penstock.jobs.delta import DeltaTables
from penstock.jobs.storage import Store
from penstock.telemetry.pipeline.publish import Topics
from penstock.telemetry.pipeline.tables import Tables
from tests.telemetry.pipeline.processes import jvm_below, kill

OWNERS = {each.__name__: each for each in (DeltaTables, Store, Tables, Topics)}


def end_all() -> None:
    os.killpg(0, signal.SIGKILL)


def end_jvm() -> None:
    kill(jvm_below(os.getpid()))


DEATHS = {"all": end_all, "jvm": end_jvm}


def deadly(method: Callable[..., Any], die: Callable[[], None], moment: str, call: str) -> Callable[..., Any]:
    calls = 0
    # Spark's workers are forks of the driver, and call the same methods.
    driver = os.getpid()

    def called(*args: Any, **options: Any) -> Any:
        nonlocal calls
        if os.getpid() != driver:
            return method(*args, **options)
        calls += 1
        is_it = call in (str(calls), args[1])
        if is_it and moment == "before":
            die()
        result = method(*args, **options)
        if is_it and moment == "0":
            die()
        elif is_it and moment != "before":
            Timer(float(moment), die).start()
        return result

    return called


if __name__ == "__main__":
    victim, moment, point, call, *arguments = sys.argv[1:]
    owner, name = OWNERS[point.split(".")[0]], point.split(".")[1]
    setattr(owner, name, deadly(getattr(owner, name), DEATHS[victim], moment, call))
    sys.argv = ["penstock", *arguments]
    main()
