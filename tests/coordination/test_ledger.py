"""The ledger applies records at once and leaves records, replies and effects in the outbox."""

from __future__ import annotations

from penstock.coordination.ledger import Ledger
from penstock.coordination.outbox import bytes_of, response_of
from penstock.wire.schema import Struct, string


class Text(Struct):
    text: str = string()


def encode(key: Struct, value: Struct | None, version: int | None) -> tuple[bytes, bytes | None]:
    assert isinstance(key, Text)
    return f"{key.text}@{version}".encode(), value.text.encode() if isinstance(value, Text) else None


def test_a_written_record_is_applied_at_once() -> None:
    applied: list[tuple[str, str | None]] = []
    ledger = Ledger(encode, lambda key, value: applied.append((key.text, value and value.text)))

    ledger.write(Text(text="a"), Text(text="1"))
    ledger.write(Text(text="a"), None, 3)
    ledger.write_encoded((b"encoded", b"before"), Text(text="b"), Text(text="2"))

    assert applied == [("a", "1"), ("a", None), ("b", "2")]
    assert ledger.outbox.records == [(b"a@None", b"1"), (b"a@3", None), (b"encoded", b"before")]


def test_a_logged_record_is_encoded_when_it_is_appended_and_not_applied() -> None:
    ledger = Ledger(encode, lambda key, value: None)
    state = ["before"]

    ledger.log(lambda: (Text(text="a"), Text(text=state[0])))
    state[0] = "after"

    assert [bytes_of(record) for record in ledger.outbox.records] == [(b"a@None", b"after")]


def test_replies_and_effects_wait_in_the_outbox() -> None:
    ledger = Ledger(encode, lambda key, value: None)
    assert not ledger.outbox

    ledger.reply("first request", Text(text="now"))
    ledger.reply("second request", lambda: Text(text="later"))
    ledger.after_commit("an effect")

    replies = [(reply_to, response_of(reply)) for reply_to, reply in ledger.outbox.replies]
    assert replies == [("first request", Text(text="now")), ("second request", Text(text="later"))]
    assert ledger.outbox.effects == ["an effect"]
    assert ledger.outbox
    ledger.outbox.clear()
    assert not ledger.outbox


def test_a_turn_has_two_clocks() -> None:
    """Timers use a clock that never goes back; records have wall-clock time."""
    ledger = Ledger(encode, lambda key, value: None)
    ledger.begin(now_ms=1_000_000, timer_ms=10)
    ledger.timers.schedule(("k",), 5)
    ledger.begin(now_ms=1, timer_ms=15)
    assert ledger.now_ms == 1
    assert ledger.timers.pop_expired() == ("k",)
