"""The clients and servers that the migration guides need, as far as they can be installed within seconds.

    python -m lab.guide_servers         prints the interpreter for the tests of the guides

Prints one line to stderr for each that is not there; nothing fails here. Without clients the interpreter is
this one, and the tests skip what needs them. `make bridges` builds everything, for as long as it takes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from lab.bridge_clients import bridge_python
from lab.home import LabError
from lab.moto import moto_python
from lab.nats import nats_installed
from lab.rabbitmq import rabbitmq_root

__all__ = ["LIMIT_S", "install", "main"]

#: several times as long as an installation takes beside the other parts of `make test`
LIMIT_S: Final = 180.0
_CLIENTS: Final = "clients"
_STEPS: Final[Mapping[str, Callable[[], object]]] = {
    _CLIENTS: bridge_python,
    "NATS": nats_installed,
    "RabbitMQ": rabbitmq_root,
    "moto": moto_python,
}


def install(name: str, limit_s: float = LIMIT_S) -> str | None:
    """Install one of them in a process of its own; the reason in one line if it cannot be had."""
    step = subprocess.Popen(
        [sys.executable, "-m", "lab.guide_servers", name],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = step.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        # With pip or apt, which would go on.
        with suppress(ProcessLookupError):
            os.killpg(step.pid, signal.SIGKILL)
        step.communicate()
        return f"not installed within {limit_s:.0f} s"
    return None if step.returncode == 0 else (output.strip().splitlines() or ["no reason given"])[-1]


def main(names: list[str]) -> int:
    if names:
        try:
            _STEPS[names[0]]()
        except LabError as missing:
            # The tool's last line says most.
            print(str(missing).splitlines()[-1])
            return 1
        return 0
    with ThreadPoolExecutor() as pool:
        reasons = dict(zip(_STEPS, pool.map(install, _STEPS), strict=True))
    for name, reason in reasons.items():
        if reason is not None:
            print(f"guides run without {name}: {reason[:200]}", file=sys.stderr)
    print(sys.executable if reasons[_CLIENTS] else bridge_python())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
