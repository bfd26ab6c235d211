"""Filters of messages: a small language that is parsed and interpreted, never compiled to code.

    value.user.id = 42 and (key startswith "eu-" or not header.retry exists)

Operands: `key`, `value`, `offset`, `partition`, `timestamp`, `size`, `header.NAME`, and paths into JSON
(`value.items[0].price`). Operators: = != < <= > >= contains startswith endswith matches exists. A text
without an operator is searched in keys, values and headers. Regular expressions are RE2's, whose time is
linear.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import re2

from penstock.model.errors import PenstockError
from penstock.records.record import Record

__all__ = ["InvalidFilter", "Predicate", "parse_filter"]

Predicate: TypeAlias = Callable[[int, Record], bool]
_Read: TypeAlias = Callable[[int, Record], Any]

LENGTH_MAX: Final = 1000
_DEPTH_MAX: Final = 20
_REGEX_MEMORY: Final = 1 << 20
#: paths do not look into larger JSON: a parser holds the interpreter
_JSON_MAX: Final = 4 << 20
_MISSING: Final = object()
_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(?P<op><=|>=|!=|==|=|<|>)|(?P<paren>[()])"""
    r"""|(?P<word>(?:\["[^"]*"\]|[^\s()=<>!"'])+))"""
)
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_STEP: Final = re.compile(r'\.([^.\[\]]+)|\[(\d+)\]|\["([^"]*)"\]')
_COMPARES: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_WORDS: Final = ("contains", "startswith", "endswith", "matches", "exists")
_ROOTS: Final = ("key", "value", "offset", "partition", "timestamp", "size", "header")
_LITERALS: Final = {"true": True, "false": False, "null": None}


class InvalidFilter(PenstockError):
    """A filter that cannot be read; the message says where and what is expected."""


def parse_filter(text: str) -> Predicate | None:
    """The predicate of a filter; None for an empty one. InvalidFilter if it cannot be read."""
    text = text.strip()
    if not text:
        return None
    if len(text) > LENGTH_MAX:
        raise InvalidFilter(f"a filter has at most {LENGTH_MAX} characters, this one has {len(text)}")
    tokens = _tokens(text)
    structured = any(kind == "op" or (kind == "word" and word in _WORDS) for kind, word in tokens)
    if not structured:
        return _search(tokens[0][1] if len(tokens) == 1 and tokens[0][0] == "string" else text)
    parser = _Parser(tokens)
    found = parser.any_of(0)
    if parser.rest:
        raise InvalidFilter(f"unexpected {parser.rest[0][1]!r}: combine conditions with `and` or `or`")
    return found


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidFilter(f"cannot read the filter from {text[position : position + 20]!r} on")
        kind = str(match.lastgroup)
        word = match[kind]
        found.append((kind, _unquoted(word) if kind == "string" else word))
        position = match.end()
    return found


def _unquoted(word: str) -> str:
    return re.sub(r"\\(.)", r"\1", word[1:-1])


def _search(text: str) -> Predicate:
    wanted = text.encode().lower()

    def found(_: int, record: Record) -> bool:
        parts = [record.key, record.value, *(value for _, value in record.headers)]
        return any(wanted in part.lower() for part in parts if part)

    return found


class _Parser:
    """Recursive descent over tokens, at most `_DEPTH_MAX` levels deep."""

    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self.rest = tokens

    def any_of(self, depth: int) -> Predicate:
        found = [self.all_of(depth)]
        while self._takes("or"):
            found.append(self.all_of(depth))
        return found[0] if len(found) == 1 else lambda p, r: any(each(p, r) for each in found)

    def all_of(self, depth: int) -> Predicate:
        found = [self.one(depth)]
        while self._takes("and"):
            found.append(self.one(depth))
        return found[0] if len(found) == 1 else lambda p, r: all(each(p, r) for each in found)

    def one(self, depth: int) -> Predicate:
        if depth > _DEPTH_MAX:
            raise InvalidFilter(f"a filter has at most {_DEPTH_MAX} levels of parentheses")
        if self._takes("not"):
            inner = self.one(depth + 1)
            return lambda p, r: not inner(p, r)
        if self._takes("("):
            inner = self.any_of(depth + 1)
            if not self._takes(")"):
                raise InvalidFilter("a closing parenthesis is missing")
            return inner
        return self._comparison()

    def _comparison(self) -> Predicate:
        kind, word = self._next("an operand, such as `value.name` or `key`")
        if kind != "word":
            raise InvalidFilter(f"{word!r} is not an operand: use one of {', '.join(_ROOTS)}")
        read = _reader(word)
        _, operator = self._next(f"an operator after `{word}`")
        if operator == "exists":
            return lambda p, r: read(p, r) is not _MISSING
        if operator not in _COMPARES and operator not in _WORDS and operator not in ("=", "==", "!="):
            raise InvalidFilter(f"{operator!r} is not an operator: use = != < <= > >= {' '.join(_WORDS)}")
        literal = self._literal(operator)
        return _compared(read, operator, literal, is_time=word == "timestamp")

    def _literal(self, operator: str) -> Any:
        kind, word = self._next(f"a value after `{operator}`")
        if kind == "string":
            return word
        if kind != "word":
            raise InvalidFilter(f"{word!r} is not a value: put text into quotes")
        if word in _LITERALS:
            return _LITERALS[word]
        if _NUMBER.fullmatch(word):
            return float(word) if any(c in word for c in ".eE") else int(word)
        return word

    def _takes(self, word: str) -> bool:
        if self.rest and self.rest[0][0] != "string" and self.rest[0][1] == word:
            del self.rest[0]
            return True
        return False

    def _next(self, expected: str) -> tuple[str, str]:
        if not self.rest:
            raise InvalidFilter(f"the filter ends where {expected} is expected")
        return self.rest.pop(0)


def _reader(path: str) -> _Read:
    root = re.split(r"[.\[]", path, maxsplit=1)[0]
    if root not in _ROOTS:
        raise InvalidFilter(f"{root!r} is not an operand: use one of {', '.join(_ROOTS)}")
    if root == "header":
        name = path[len("header.") :] if path.startswith("header.") else path[len('header["') : -2]
        return lambda _, record: _header(record, name)
    steps = _steps(path, root)
    if root in ("key", "value"):
        return lambda _, record: _content(getattr(record, root), steps)
    if steps:
        raise InvalidFilter(f"{root} has no parts: {path!r}")
    if root == "partition":
        return lambda partition, _: partition
    if root == "size":
        return lambda _, record: len(record.value or b"")
    return lambda _, record: getattr(record, root)


def _steps(path: str, root: str) -> list[str | int]:
    found: list[str | int] = []
    position = len(root)
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            raise InvalidFilter(f"cannot read the path {path!r}: write it like value.items[0].name")
        name, index, quoted = match.groups()
        found.append(int(index) if index is not None else name if name is not None else quoted)
        position = match.end()
    return found


def _header(record: Record, name: str) -> Any:
    for known, value in record.headers:
        if known == name:
            return None if value is None else value.decode(errors="replace")
    return _MISSING


def _content(data: bytes | None, steps: list[str | int]) -> Any:
    """The text of bytes, or a part of their JSON; `_MISSING` if there is none."""
    if data is None:
        return _MISSING if steps else None
    if not steps:
        return data.decode(errors="replace")
    if len(data) > _JSON_MAX:
        return _MISSING
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return _MISSING
    for step in steps:
        if isinstance(found, dict) and str(step) in found:
            found = found[str(step)]
        elif isinstance(found, list) and isinstance(step, int) and step < len(found):
            found = found[step]
        else:
            return _MISSING
    return found


def _compared(read: _Read, operator: str, literal: Any, *, is_time: bool) -> Predicate:
    if is_time and isinstance(literal, str):
        literal = _milliseconds(literal)
    if operator in ("=", "=="):
        return lambda p, r: _equal(read(p, r), literal)
    if operator == "!=":
        return lambda p, r: not _equal(read(p, r), literal)
    if operator in _COMPARES:
        return _ordered(read, _COMPARES[operator], literal)
    return _textual(read, operator, str(literal))


def _equal(found: Any, literal: Any) -> bool:
    if isinstance(found, str) and not isinstance(literal, str):
        return literal is not None and found == _as_text(literal)
    return (found is not _MISSING and type(found) is not bool and found == literal) or found is literal


def _as_text(literal: Any) -> str:
    return json.dumps(literal) if isinstance(literal, bool) else str(literal)


def _ordered(read: _Read, compare: Callable[[Any, Any], bool], literal: Any) -> Predicate:
    numeric = isinstance(literal, int | float) and not isinstance(literal, bool)

    def holds(partition: int, record: Record) -> bool:
        found = read(partition, record)
        if numeric and isinstance(found, str) and _NUMBER.fullmatch(found):
            found = float(found)
        if numeric:
            return isinstance(found, int | float) and not isinstance(found, bool) and compare(found, literal)
        return isinstance(found, str) and isinstance(literal, str) and compare(found, literal)

    return holds


def _textual(read: _Read, operator: str, literal: str) -> Predicate:
    if operator == "matches":
        options = re2.Options()
        options.max_mem = _REGEX_MEMORY
        options.log_errors = False
        try:
            pattern = re2.compile(literal, options=options)
        except re2.error as error:
            raise InvalidFilter(f"{literal!r} is not a regular expression of RE2: {error}") from error
        test: Callable[[str], bool] = lambda text: pattern.search(text) is not None  # noqa: E731
    elif operator == "contains":
        test = lambda text: literal in text  # noqa: E731
    elif operator == "startswith":
        test = lambda text: text.startswith(literal)  # noqa: E731
    else:
        test = lambda text: text.endswith(literal)  # noqa: E731

    def holds(partition: int, record: Record) -> bool:
        found = read(partition, record)
        if found is _MISSING or found is None:
            return False
        return test(found if isinstance(found, str) else json.dumps(found))

    return holds


def _milliseconds(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidFilter(f"{text!r} is not a time like 2030-01-31T12:00:00Z") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
