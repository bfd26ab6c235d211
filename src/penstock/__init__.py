"""Penstock: a distributed message queue in Python that speaks the Kafka wire protocol."""

import sys

# `python -m penstock` looks for modules in the working directory first: a file `typer.py` there would run as
# the broker. So the directory goes before anything else is imported, even `__future__`. A program that
# imports this package keeps its path, and `python -P` leaves none to remove.
if not sys.flags.safe_path and sys.argv[:1] == ["-m"]:
    _options = [each for each in sys.orig_argv if each.startswith("-m")]
    _module = _options[0][2:] or sys.orig_argv[sys.orig_argv.index("-m") + 1] if _options else ""
    if _module.partition(".")[0] == "penstock":
        del sys.path[0]

from typing import TYPE_CHECKING, Any

from penstock.version import VERSION

if TYPE_CHECKING:
    from penstock.client import Admin, Consumer, Producer, Queue
    from penstock.frames import read

__version__ = VERSION
__all__ = ["Admin", "Consumer", "Producer", "Queue", "__version__", "read"]


def __getattr__(name: str) -> Any:
    # Imported on first use: a broker has no need of the clients, nor of librdkafka.
    if name in ("Admin", "Consumer", "Producer", "Queue"):
        from penstock import client

        return getattr(client, name)
    if name == "read":
        return _read()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _read() -> Any:
    """`penstock.frames.read`, or an error that says how to install what it needs."""
    try:
        from penstock.frames import read
    except ModuleNotFoundError as e:
        from penstock.model.installation import pip_install

        raise ModuleNotFoundError(f"{e.name} is missing: {pip_install('frames')}", name=e.name) from e
    return read
