"""Keys of data directories: their text, and what never appears in a text."""

from __future__ import annotations

import pickle
from base64 import b64encode

import pytest

from penstock.encryption.keys import KEY_BYTES, Keystream, format_key, parse_keys
from penstock.model.errors import InvalidConfig
from tests.encryption.keyring import NEW, OLD, OTHER, RING

SECRET = b64encode(bytes(range(32))).decode()


@pytest.mark.parametrize("separator", [",", "\n", " , ", "\n\n"])
def test_the_first_key_encrypts(separator: str) -> None:
    ring = parse_keys(f"\n{NEW}{separator}{OLD}\n")
    assert (ring.current.name, ring.names) == ("new", ["new", "old"])


@pytest.mark.parametrize(
    "text",
    ["", SECRET, f"a b:{SECRET}", "name:short", f"{'n' * 17}:{SECRET}", f"x:{SECRET}=", f"{OLD},{OTHER}"],
)
def test_malformed_keys_are_refused_without_showing_them(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"penstock\.encryption\.keys") as refused:
        parse_keys(text)
    assert SECRET not in str(refused.value)


def test_a_name_is_checked() -> None:
    with pytest.raises(InvalidConfig, match="is not a name of a key"):
        format_key("a:b", bytes(KEY_BYTES))


def test_secrets_are_not_in_texts() -> None:
    for shown in (repr(RING), repr(RING.current), str(RING)):
        assert SECRET not in shown and str(bytes(range(32)))[2:-1] not in shown


def test_a_key_unwraps_only_keys_that_it_has_wrapped() -> None:
    nonce = bytes(12)
    wrapped = RING.current.wrap(b"k" * 32, nonce)
    assert RING.current.unwrap(wrapped, nonce) == b"k" * 32
    for other in (parse_keys(OTHER).current, parse_keys(NEW).current):
        assert other.unwrap(wrapped, nonce) is None
    assert RING.current.unwrap(wrapped[:-1] + b"\0", nonce) is None
    assert pickle.loads(pickle.dumps(RING)).current == RING.current


@pytest.mark.parametrize("position", [0, 1, 15, 16, 17, 4095, 1 << 40])
def test_a_stream_starts_anywhere(position: int) -> None:
    stream = Keystream(bytes(32))
    whole = stream.apply(b"n" * 8, position - position % 16, bytes(64 + position % 16))
    assert stream.apply(b"n" * 8, position, bytes(64)) == whole[position % 16 :]
    assert stream.apply(b"m" * 8, position, bytes(64)) != whole[position % 16 :]
