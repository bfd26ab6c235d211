"""Syslog messages of audit events, by the grammar of RFC 5424 and RFC 5425."""

from __future__ import annotations

import re

from penstock.audit.syslog_frames import frame, message

#: RFC 5424, section 6: HEADER SP STRUCTURED-DATA SP MSG, with the limits of its fields
RFC_5424 = re.compile(
    rb"<(?P<pri>[1-9]\d{0,2})>1 (?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z) (?P<host>[!-~]{1,255}) "
    rb"(?P<app>[!-~]{1,48}) (?P<proc>[!-~]{1,128}) (?P<msgid>[!-~]{1,32}) - (?P<msg>.*)",
    re.DOTALL,
)


def test_a_message_has_the_form_of_the_rfc() -> None:
    event = {"event": "access_denied", "status_id": 2, "time": 1_700_000_000_250}
    found = RFC_5424.fullmatch(message(event, b'{"a": 1}', "host-1", 3))
    assert found is not None
    # Facility 13 (log audit), severity 4 (warning).
    assert int(found["pri"]) == 13 * 8 + 4
    assert found["time"] == b"2023-11-14T22:13:20.250Z"
    assert (found["host"], found["app"], found["proc"]) == (b"host-1", b"penstock", b"3")
    assert (found["msgid"], found["msg"]) == (b"access_denied", b'{"a": 1}')


def test_a_success_is_informational_and_unusual_names_fit() -> None:
    event = {"event": "x" * 50, "status_id": 1, "time": 0}
    found = RFC_5424.fullmatch(message(event, b"{}", "my hóst " + "h" * 300, 1))
    assert found is not None
    assert int(found["pri"]) == 13 * 8 + 6
    assert found["host"].startswith(b"myhst") and len(found["msgid"]) == 32
    assert RFC_5424.fullmatch(message({"time": 0}, b"{}", " ", 1)) is not None


def test_frames_count_octets() -> None:
    """RFC 5425, section 4.3: MSG-LEN SP SYSLOG-MSG."""
    assert frame("<13>é".encode()) == b"6 <13>\xc3\xa9"
