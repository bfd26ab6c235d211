"""The command lines of the project's own programs, which `make` starts."""

from __future__ import annotations

import argparse
import os
import sys
from typing import NoReturn

__all__ = ["Arguments", "count_from_environment"]


class Arguments(argparse.ArgumentParser):
    """Parses arguments. A wrong argument is refused with one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; --help shows the arguments", file=sys.stderr)
        sys.exit(2)


def count_from_environment(name: str, default: int) -> int:
    """A number of at least 1, as `make` passes it; empty or missing is `default`. Others end the program."""
    text = os.environ.get(name, "")
    if not text:
        return default
    if text.isdecimal() and int(text) > 0:
        return int(text)
    print(f"{name}={text} is not a whole number of at least 1", file=sys.stderr)
    sys.exit(2)
