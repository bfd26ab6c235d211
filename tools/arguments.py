"""The command lines of the project's own programs, which `make` starts."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

__all__ = ["Arguments"]


class Arguments(argparse.ArgumentParser):
    """Parses arguments. A wrong argument is refused with one line and exit code 2."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; --help shows the arguments", file=sys.stderr)
        sys.exit(2)
