"""Lists the parts of `make test` that were skipped, with the reason of each, which has its remedy.

    python3 -m tools.skipped FILE

Every run of pytest that finds `PENSTOCK_SKIPPED` in its environment appends its skipped tests to that file
(`tests/conftest.py`), one reason per line.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["VARIABLE", "main", "summary"]

VARIABLE: Final = "PENSTOCK_SKIPPED"
_HINT: Final = "`make test-tools` installs what it can"


def summary(reasons: Iterable[str]) -> list[str]:
    """The lines to print: each reason once, with the number of its tests, the most frequent first."""
    counts = Counter(reason for line in reasons if (reason := line.strip()))
    if not counts:
        return []
    total = sum(counts.values())
    ranked = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    tests = "test was" if total == 1 else "tests were"
    return [f"{total} {tests} skipped ({_HINT}):", *(f"  {count:4} {reason}" for reason, count in ranked)]


def main() -> None:
    path = Path(sys.argv[1])
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    for line in summary(lines):
        print(line)


if __name__ == "__main__":
    main()
