"""The principal of a TLS client: the subject of its certificate as text, and the rules that shorten it.

The text is that of Java's `X500Principal.getName()` (RFC 2253): the relative names in reverse order, values
escaped, and `OID=#HEX` for attributes without a keyword in RFC 2253, such as emailAddress. Existing ACLs and
`ssl.principal.mapping.rules` are written for that text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from penstock.model.errors import InvalidConfig
from penstock.security.der import certificate_fields, element, elements, time_of

__all__ = [
    "MappingRule",
    "NoMappingRule",
    "alternative_names",
    "expiry_of",
    "map_principal",
    "parse_mapping_rules",
    "subject_name",
]

_SEQUENCE: Final = 0x30
_EXTENSIONS: Final = 0xA3
_SUBJECT_ALT_NAME: Final = bytes((0x55, 0x1D, 0x11))
_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
#: string types of ASN.1 by tag, with the encoding of their values
_STRINGS: Final = {
    0x0C: "utf-8",
    0x13: "ascii",
    0x14: "latin-1",
    0x16: "ascii",
    0x1B: "latin-1",
    0x1C: "utf-32-be",
    0x1E: "utf-16-be",
}
_ESCAPED: Final = re.compile(r'[,=+<>#;"\\]')


class NoMappingRule(Exception):
    """No rule of `ssl.principal.mapping.rules` matches the name in a certificate."""


class MappingRule(NamedTuple):
    """One rule. `pattern` is None for DEFAULT, which takes the whole name."""

    pattern: re.Pattern[str] | None
    #: texts, and numbers of groups
    replacement: tuple[str | int, ...] = ()
    #: "L" or "U": the case of the result; empty leaves it
    case: str = ""


def subject_name(certificate: bytes) -> str:
    """The subject of a certificate in DER, as Java writes it; ValueError if the bytes are malformed."""
    fields = certificate_fields(certificate)
    # Serial number, signature algorithm, issuer and validity come before the subject.
    if len(fields) < 5 or fields[4][0] != _SEQUENCE:
        raise ValueError("the certificate has no subject")
    return ",".join(_relative_name(content) for _, content in reversed(elements(fields[4][1])))


def alternative_names(certificate: bytes) -> frozenset[tuple[int, bytes]]:
    """The subject alternative names of a certificate in DER, as tags and contents."""
    for tag, content in certificate_fields(certificate):
        if tag != _EXTENSIONS:
            continue
        for _, extension in elements(element(content, 0)[1]):
            parts = elements(extension)
            if parts[0][1] == _SUBJECT_ALT_NAME:
                return frozenset(elements(element(parts[-1][1], 0)[1]))
    return frozenset()


def expiry_of(certificate: bytes) -> float:
    """When a certificate in DER expires, in seconds since 1970; ValueError if the bytes are malformed."""
    fields = certificate_fields(certificate)
    # Serial number, signature algorithm and issuer come before the validity.
    if len(fields) < 4 or fields[3][0] != _SEQUENCE:
        raise ValueError("the certificate has no validity")
    times = elements(fields[3][1])
    if len(times) != 2:
        raise ValueError("the certificate has no validity")
    return time_of(*times[1])


def _relative_name(content: bytes) -> str:
    """One relative name; several attributes are joined with `+`."""
    return "+".join(_attribute(attribute) for _, attribute in elements(content))


def _attribute(content: bytes) -> str:
    _, oid, position = element(content, 0)
    tag, value, end = element(content, position)
    name = _dotted(oid)
    keyword = _KEYWORDS.get(name)
    if keyword is None or tag not in _STRINGS:
        return f"{keyword or name}=#{content[position:end].hex()}"
    text = _ESCAPED.sub(r"\\\g<0>", value.decode(_STRINGS[tag], "replace")).replace("\0", "\\00")
    leading = len(text) - len(text.lstrip(" "))
    trailing = len(text) - len(text.rstrip(" ")) if leading < len(text) else 0
    middle = text[leading : len(text) - trailing]
    return f"{keyword}=" + "\\ " * leading + middle + "\\ " * trailing


def _dotted(oid: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise ValueError("empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


_RULE: Final = re.compile(r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/"
                          r"(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))\s*(?:,|$)")  # fmt: skip

#: a part of a replacement: a reference to a group, an escaped character, or text
_REFERENCE: Final = re.compile(r"\$(?P<digits>[0-9]*)|\\(?P<escaped>.)|(?P<text>[^$\\]+)", re.DOTALL)


def parse_mapping_rules(text: str) -> tuple[MappingRule, ...]:
    """The rules of `ssl.principal.mapping.rules`; InvalidConfig if one is malformed."""
    rules, position = [], 0
    while position < len(text.rstrip()):
        match = _RULE.match(text, position)
        if match is None:
            raise InvalidConfig(
                f"ssl.principal.mapping.rules: {text[position:]!r} is not a rule: write "
                f"RULE:pattern/replacement/[LU] or DEFAULT"
            )
        position = match.end()
        if match["default"]:
            rules.append(MappingRule(None))
            continue
        try:
            pattern = re.compile(match["pattern"].replace("\\/", "/"))
        except re.error as e:
            raise InvalidConfig(
                f"ssl.principal.mapping.rules: {match['pattern']!r} is not a regular expression: {e}"
            ) from e
        rules.append(MappingRule(pattern, _replacement(match["replacement"], pattern.groups), match["case"]))
    return tuple(rules) or (MappingRule(None),)


def _replacement(text: str, groups: int) -> tuple[str | int, ...]:
    """The parts of a replacement in the syntax of Java; InvalidConfig if Java would refuse it.

    A reference beyond the last group loses digits at its end until there is such a group. Without one it is
    plain text, but only in a rule that has groups at all.
    """
    parts: list[str | int] = []
    for found in _REFERENCE.finditer(text):
        digits = found["digits"]
        if digits is None:
            parts.append(found["escaped"] or found["text"])
            continue
        used = digits[:1]
        while len(used) < len(digits) and int(digits[: len(used) + 1]) <= groups:
            used = digits[: len(used) + 1]
        if used and int(used) <= groups:
            parts += [int(used), digits[len(used) :]]
        elif used and groups:
            parts.append("$" + digits)
        else:
            raise InvalidConfig(
                f"ssl.principal.mapping.rules: the replacement {text!r} refers to a group that its pattern "
                f"does not have; write \\$ for a dollar sign"
            )
    return tuple(parts)


def map_principal(name: str, rules: Sequence[MappingRule]) -> str:
    """The name of the principal that the first matching rule yields; NoMappingRule if none matches."""
    for rule in rules:
        if rule.pattern is None:
            return name
        if rule.pattern.fullmatch(name) is None:
            continue
        # Kafka's rules replace every match, also an empty one at the end, once the whole name has matched.
        mapped = rule.pattern.sub(partial(_expanded, rule.replacement), name)
        return mapped.lower() if rule.case == "L" else mapped.upper() if rule.case == "U" else mapped
    raise NoMappingRule(f"no rule of ssl.principal.mapping.rules matches {name!r}")


def _expanded(replacement: Sequence[str | int], match: re.Match[str]) -> str:
    return "".join(part if isinstance(part, str) else match[part] or "" for part in replacement)
