"""Messages of SQS, also those that SNS has put into a queue, as `Bridged`, and back."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from penstock.bridge.mapping import KeyRule
from penstock.bridge.message import (
    BRIDGE_ENCODING,
    BRIDGE_PLACE,
    BRIDGE_SOURCE,
    NULL,
    Bridged,
    copy_headers,
    foreign_headers,
    header,
)

__all__ = ["SQS", "SqsCopy", "from_sqs", "to_sqs"]

#: the system, as a copy names it
SQS: Final = "sqs"
#: SQS allows ten attributes; the others are in this one, as JSON
_MORE: Final = "penstock-bridge-headers"
_ATTRIBUTES: Final = 10
_NAME: Final = re.compile(r"(?!\.)(?!.*\.\.)(?!.*\.$)(?!(?i:aws\.|amazon\.))[A-Za-z0-9_.-]{1,256}")
#: the characters that SQS accepts
_TEXT: Final = re.compile("[\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]*")
_BASE64, _EMPTY = "base64", "empty"


def from_sqs(
    message: Mapping[str, Any], *, queue: str, rule: KeyRule, unwrap_sns: bool, handle: Any
) -> Bridged:
    """A message as `receive_message` returns it. With `unwrap_sns` its body is a notification of SNS."""
    system = message.get("Attributes", {})
    found = _headers(message.get("MessageAttributes", {}))
    body, id_ = message["Body"], message["MessageId"]
    if unwrap_sns and (notification := _notification(body)) is not None:
        body, id_ = notification["Message"], notification["MessageId"]
        found += _sns_headers(notification)
    group = system.get("MessageGroupId")
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        if name in system:
            found.append((f"sqs-{name}", system[name].encode()))
    sent = system.get("SentTimestamp")
    return Bridged(
        body=_decoded(body, found),
        system=SQS,
        place=queue,
        id=id_,
        has_unique_id=True,
        key=rule.key(group, found),
        headers=foreign_headers(found),
        time_ms=None if sent is None else int(sent),
        origin=header(found, BRIDGE_SOURCE),
        origin_place=header(found, BRIDGE_PLACE),
        handle=handle,
    )


def _headers(attributes: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for name, attribute in attributes.items():
        value = attribute.get("BinaryValue")
        found.append((name, attribute.get("StringValue", "").encode() if value is None else bytes(value)))
    return found + _more_headers(header(found, _MORE))


def _more_headers(text: str | None) -> list[tuple[str, bytes]]:
    """The headers that `to_sqs` has put into one attribute; none if another program has written it."""
    if text is None:
        return []
    try:
        found = [(name, base64.b64decode(value)) for name, value in json.loads(text)]
    except (ValueError, TypeError, RecursionError):
        return []
    return found if all(isinstance(name, str) and _is_utf8(name) for name, _ in found) else []


def _notification(body: str) -> dict[str, Any] | None:
    """The envelope that SNS puts around a message unless raw delivery is on.

    A publisher can send any body to the queue: one that is not exactly an envelope stays as it is.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("Type") != "Notification":
        return None
    attributes = document.get("MessageAttributes") or {}
    is_one = (
        isinstance(document.get("Message"), str)
        and isinstance(document.get("MessageId"), str)
        and isinstance(attributes, dict)
        and all(isinstance(each, dict) for each in attributes.values())
        and _is_utf8(json.dumps(document, ensure_ascii=False))
    )
    return {**document, "MessageAttributes": attributes} if is_one else None


def _is_utf8(text: str) -> bool:
    """Returns false for half a surrogate pair, which JSON can have and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sns_headers(notification: Mapping[str, Any]) -> list[tuple[str, bytes]]:
    found = [
        (f"sns-{name}", str(notification[name]).encode())
        for name in ("TopicArn", "Subject")
        if notification.get(name)
    ]
    for name, attribute in notification["MessageAttributes"].items():
        value = str(attribute.get("Value", ""))
        found.append((name, _unpacked(value) if attribute.get("Type") == "Binary" else value.encode()))
    return found


def _unpacked(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except ValueError:
        return value.encode()


def _decoded(body: str, headers: list[tuple[str, bytes]]) -> bytes | None:
    encoding = header(headers, BRIDGE_ENCODING)
    if encoding == NULL:
        return None
    if encoding == _EMPTY:
        return b""
    if encoding == _BASE64:
        try:
            return base64.b64decode(body, validate=True)
        except binascii.Error:
            return body.encode()
    return body.encode()


class SqsCopy(NamedTuple):
    """An entry of `send_message_batch`, without its id in the batch."""

    body: str
    attributes: dict[str, dict[str, Any]]
    group: str
    deduplication_id: str | None

    @property
    def size(self) -> int:
        """The bytes that SQS counts: the body, and the name, type and value of each attribute."""
        attributes = (
            len(name) + len(each["DataType"]) + len(each.get("BinaryValue") or each["StringValue"].encode())
            for name, each in self.attributes.items()
        )
        return len(self.body.encode()) + sum(attributes)

    def entry(self, is_fifo: bool) -> dict[str, Any]:
        found: dict[str, Any] = {"MessageBody": self.body, "MessageAttributes": self.attributes}
        if is_fifo:
            found["MessageGroupId"] = self.group
            if self.deduplication_id is not None:
                found["MessageDeduplicationId"] = self.deduplication_id
        return found


def to_sqs(message: Bridged) -> SqsCopy:
    """A record for a queue. Records of one key are in one message group, those without a key in another."""
    body, encoding = _encoded(message.body)
    own = [(name, value) for name, value in copy_headers(message) if name.startswith("penstock-bridge-")]
    if encoding is not None:
        own.append((BRIDGE_ENCODING, encoding.encode()))
    fitting: dict[str, bytes] = {}
    rest: list[tuple[str, str]] = []
    for name, value in message.headers:
        has_room = len(fitting) + len(own) + 1 < _ATTRIBUTES
        if has_room and name not in fitting and value and _NAME.fullmatch(name):
            fitting[name] = value
        else:
            rest.append((name, base64.b64encode(value).decode()))
    if rest:
        own.append((_MORE, json.dumps(rest).encode()))
    attributes = {name: _attribute(value) for name, value in (*fitting.items(), *own)}
    group = base64.urlsafe_b64encode(message.key or b"").decode()[:128] or "none"
    return SqsCopy(body, attributes, group, message.id)


def _attribute(value: bytes) -> dict[str, Any]:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return {"DataType": "Binary", "BinaryValue": value}
    if _TEXT.fullmatch(text):
        return {"DataType": "String", "StringValue": text}
    return {"DataType": "Binary", "BinaryValue": value}


def _encoded(body: bytes | None) -> tuple[str, str | None]:
    """The body as SQS accepts it, which must be text and not empty, and its encoding."""
    if body is None:
        return "-", NULL
    if not body:
        return "-", _EMPTY
    try:
        text = body.decode()
    except UnicodeDecodeError:
        text = "\0"
    return (text, None) if _TEXT.fullmatch(text) else (base64.b64encode(body).decode(), _BASE64)
