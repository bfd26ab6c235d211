"""Topics by regular expression, in RE2's syntax, as clients of the new protocol send them.

RE2 takes time linear in its input for any pattern, so a member cannot stall the broker. The library is
loaded with the first pattern, because most brokers have none.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.errors import ApiError, ErrorCode

__all__ = ["matching_topics"]


def matching_topics(pattern: str, names: Iterable[str]) -> set[str]:
    """The names that match `pattern` as a whole; INVALID_REGULAR_EXPRESSION if it is invalid."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as e:
        reason = e.args[0].decode(errors="replace") if isinstance(e.args[0], bytes) else str(e)
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {reason}.",
        ) from e
    return {name for name in names if compiled.fullmatch(name)}
