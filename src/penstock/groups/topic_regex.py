"""Topics by regular expression, in RE2's syntax, as clients of the new protocol send them.

RE2 takes time linear in its input whatever the pattern, so a member cannot stall the broker. It is loaded
with the first pattern: most brokers never see one.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.errors import ApiError, ErrorCode

__all__ = ["matching_topics"]


def matching_topics(pattern: str, names: Iterable[str]) -> set[str]:
    """The names that the whole of `pattern` matches; INVALID_REGULAR_EXPRESSION where it is none."""
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
