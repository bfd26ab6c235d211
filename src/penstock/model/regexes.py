"""Regular expressions of clients, in RE2's syntax.

RE2 matches in time linear in the text for any expression. Its cost to compile is not bounded by the length of
the expression, though: `(.{0,900}(.{0,900}))` has 21 characters. So compiled expressions have a memory bound.
The library is loaded with the first expression, because most brokers have none. It holds the interpreter lock
while it works: `broker.base.regexes` runs it in workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from penstock.model.errors import ApiError, ErrorCode

__all__ = ["MEMORY_MAX", "RegexTooLarge", "compile_regex", "matching_names"]

#: Bounds the memory of a compiled expression, in bytes. RE2's own bound is 8 MiB, with which some expressions
#: of 76 characters take a second to compile, and 15 ms for each name that they are matched with.
MEMORY_MAX: Final = 1 << 20


class RegexTooLarge(ApiError):
    """The compiled expression would exceed its memory bound."""


def compile_regex(pattern: str, memory_max: int = MEMORY_MAX) -> Any:
    """The compiled expression; INVALID_REGULAR_EXPRESSION if it is invalid or too large."""
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory_max
    try:
        return re2.compile(pattern, options)
    except re2.error as e:
        reason = e.args[0].decode(errors="replace") if isinstance(e.args[0], bytes) else str(e)
        error = RegexTooLarge if "too large" in reason else ApiError
        raise error(ErrorCode.INVALID_REGULAR_EXPRESSION, reason) from e


def matching_names(
    pattern: str,
    names: Iterable[str],
    memory_max: int = MEMORY_MAX,
    is_late: Callable[[], bool] = lambda: False,
) -> list[str] | None:
    """The names that match as a whole. None if `is_late` returned true before all were compared."""
    compiled = compile_regex(pattern, memory_max)
    found = []
    for name in names:
        if compiled.fullmatch(name):
            found.append(name)
        if is_late():
            return None
    return found
