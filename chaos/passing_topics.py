"""Topics that come and go during a run: each is created, written to and deleted.

After the run, no broker may show a sample of a deleted topic.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["PREFIX", "PassingTopics"]

PREFIX: Final = "passing-"
_PAUSE_S: Final = 0.5
_CALL_S: Final = 5.0
_QUIET: Final[dict[str, Any]] = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class PassingTopics:
    """Creates and deletes topics from `start` to `finish`, in a thread of its own."""

    def __init__(self, bootstrap: str, security: Mapping[str, str]) -> None:
        self._configs = {**_QUIET, **security, "bootstrap.servers": bootstrap}
        self._admin = AdminClient(self._configs)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="passing-topics", daemon=True)
        self.count = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self, timeout_s: float) -> list[str]:
        """Stop, and delete what is left; returns a complaint if topics remain."""
        self._stopped.set()
        self._thread.join(timeout_s)
        deadline = time.monotonic() + timeout_s
        while left := self._existing():
            if time.monotonic() > deadline:
                return [f"topics are not deleted within {timeout_s:g} s: {', '.join(sorted(left))}"]
            self._delete(left)
            time.sleep(_PAUSE_S)
        return []

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopped.wait(_PAUSE_S):
                return
            name = f"{PREFIX}{number}"
            # A fault may refuse each step. What is left is deleted at the end.
            with suppress(KafkaException, TimeoutError):
                self._admin.create_topics([NewTopic(name, 2)], request_timeout=_CALL_S)[name].result(_CALL_S)
                self.count += 1
                self._write(name)
            self._delete({name})

    def _write(self, name: str) -> None:
        producer = Producer({**self._configs, "message.timeout.ms": 3000})
        producer.produce(name, b"x")
        producer.flush(_CALL_S)

    def _delete(self, names: set[str]) -> None:
        for deleted in self._admin.delete_topics(list(names), request_timeout=_CALL_S).values():
            with suppress(KafkaException, TimeoutError):
                deleted.result(_CALL_S)

    def _existing(self) -> set[str]:
        try:
            return {
                name for name in self._admin.list_topics(timeout=_CALL_S).topics if name.startswith(PREFIX)
            }
        except KafkaException:
            return {PREFIX}
