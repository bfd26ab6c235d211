"""Names in certificates, as Java writes them, and the rules that turn them into users."""

from __future__ import annotations

import pytest

from penstock.model.errors import InvalidConfig
from penstock.security.tls_names import (
    NoMappingRule,
    alternative_names,
    map_principal,
    parse_mapping_rules,
    subject_name,
)

CN, OU, ORGANIZATION, COUNTRY = b"\x55\x04\x03", b"\x55\x04\x0b", b"\x55\x04\x0a", b"\x55\x04\x06"
EMAIL = bytes.fromhex("2a864886f70d010901")
DC = bytes.fromhex("0992268993f22c640119")


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    length = len(content)
    size = bytes((length,)) if length < 128 else bytes((0x82,)) + length.to_bytes(2, "big")
    return bytes((tag,)) + size + content


def attribute(oid: bytes, text: str, tag: int = 0x0C) -> bytes:
    return der(0x30, der(6, oid), der(tag, text.encode()))


def certificate(*names: bytes, alternatives: bytes = b"") -> bytes:
    """A certificate with nothing but a subject and alternative names."""
    sequence = der(0x30)
    subject = der(0x30, *(der(0x31, name) for name in names))
    extension = der(0x30, der(6, b"\x55\x1d\x11"), der(4, der(0x30, alternatives)))
    fields = (der(0xA0, der(2, b"\2")), der(2, b"\7"), sequence, sequence, sequence, subject, sequence)
    return der(0x30, der(0x30, *fields, der(0xA3, der(0x30, extension))))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            [attribute(COUNTRY, "DE"), attribute(ORGANIZATION, "Acme"), attribute(CN, "alice")],
            "CN=alice,O=Acme,C=DE",
        ),
        ([attribute(CN, "a,b+c")], r"CN=a\,b\+c"),
        ([attribute(CN, ' x="y" ')], r"CN=\ x\=\"y\"\ "),
        ([attribute(CN, "#1;<2>\\")], r"CN=\#1\;\<2\>\\"),
        (
            [attribute(CN, "alice"), attribute(EMAIL, "a@b", 0x16)],
            "1.2.840.113549.1.9.1=#1603614062,CN=alice",
        ),
        ([attribute(CN, "alice") + attribute(OU, "dev")], "CN=alice+OU=dev"),
        ([attribute(DC, "org", 0x16), attribute(CN, "Zoë")], "CN=Zoë,DC=org"),
        ([], ""),
    ],
)
def test_the_subject_is_written_as_java_does(names: list[bytes], text: str) -> None:
    assert subject_name(certificate(*names)) == text


@pytest.mark.parametrize("size", [0, 1, 5, 20, 40])
def test_a_certificate_that_is_cut_short_is_an_error(size: int) -> None:
    with pytest.raises(ValueError):
        subject_name(certificate(attribute(CN, "alice"))[:size])


def test_alternative_names() -> None:
    names = der(0x82, b"localhost") + der(0x87, b"\x7f\0\0\1")
    assert alternative_names(certificate(alternatives=names)) == {(0x82, b"localhost"), (0x87, b"\x7f\0\0\1")}


@pytest.mark.parametrize(
    ("rules", "name", "user"),
    [
        ("DEFAULT", "CN=alice,O=x", "CN=alice,O=x"),
        ("RULE:^CN=(.*?),O=.*$/$1/", "CN=alice,O=x", "alice"),
        ("RULE:^CN=(.*?),O=.*$/$1/U, DEFAULT", "CN=alice,O=x", "ALICE"),
        ("RULE:^CN=(.*?),O=.*$/$1@x/L,DEFAULT", "CN=Bob", "CN=Bob"),
        (r"RULE:^CN=a\/b$/c\/d/", "CN=a/b", "c/d"),
        ("RULE:^CN=(.*?)$/$1/,RULE:.+/other/", "O=x", "other"),
        # Not only the whole name, but the empty rest after it is replaced as well.
        ("RULE:.*/other/", "O=x", "otherother"),
        # A reference to a group that does not exist is text, or has fewer digits.
        ("RULE:^CN=(.*)$/$1@$2/", "CN=alice", "alice@$2"),
        ("RULE:^CN=(.*)$/$12/", "CN=alice", "alice2"),
        ("RULE:^CN=(.*)$/$0/", "CN=alice", "CN=alice"),
        (r"RULE:^CN=(.*)$/\$1\q/", "CN=alice", "$1q"),
        ("RULE:^CN=(a)?(.*)$/<$1$2>/", "CN=bob", "<bob>"),
        ("RULE:^CN=(.*)$/ $1 /", "CN=alice", " alice "),
    ],
)
def test_rules_map_names(rules: str, name: str, user: str) -> None:
    """The users are those of Kafka's SslPrincipalMapper."""
    assert map_principal(name, parse_mapping_rules(rules)) == user


def test_a_name_without_a_rule_is_refused() -> None:
    # The whole name has to match: a name that only contains another one is another name.
    with pytest.raises(NoMappingRule):
        map_principal("CN=eve,CN=alice", parse_mapping_rules("RULE:CN=(alice)/$1/"))


@pytest.mark.parametrize(
    "rules",
    ["RULE:x", "RULE:(/x/", "DEFAULT;DEFAULT", "rule:a/b/", "RULE:a/$1/", "RULE:(a)/$x/", "RULE:(a)/$/"],
)
def test_malformed_rules_are_refused(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        parse_mapping_rules(rules)
