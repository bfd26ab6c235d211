"""`penstock` in a process that ends itself, and its JVM, with SIGKILL at a point of its work.

    python -m tests.telemetry.pipeline.doomed before|SECONDS CLASS.METHOD CALL ARGUMENT...

It dies before the CALL-th call of a method of the driver, or so many seconds after it: a machine that stands
still holds up its work and its end alike. It must lead a process group of its own.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from threading import Timer
from typing import Any

from penstock.cli import main
from penstock.telemetry.pipeline.publish import Topics
from penstock.telemetry.pipeline.storage import Store
from penstock.telemetry.pipeline.tables import Tables

OWNERS = {each.__name__: each for each in (Store, Tables, Topics)}


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def deadly(method: Callable[..., Any], moment: str, at_call: int) -> Callable[..., Any]:
    calls = 0

    def called(*args: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at_call and moment == "before":
            die()
        result = method(*args, **options)
        if calls == at_call and moment == "0":
            die()
        elif calls == at_call:
            Timer(float(moment), die).start()
        return result

    return called


if __name__ == "__main__":
    moment, point, call, *arguments = sys.argv[1:]
    owner, name = OWNERS[point.split(".")[0]], point.split(".")[1]
    setattr(owner, name, deadly(getattr(owner, name), moment, int(call)))
    sys.argv = ["penstock", *arguments]
    main()
