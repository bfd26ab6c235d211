"""An outlet that keeps what it is given."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.telemetry.message import Message, Sample, decode


class Recorder:
    def __init__(self) -> None:
        self.messages: list[Message] = []

    def send(self, messages: Iterable[Message]) -> None:
        self.messages += messages

    def samples(self) -> list[Sample]:
        return [decode(message.value) for message in self.messages]
