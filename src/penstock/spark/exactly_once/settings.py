"""The options of the exactly-once sink. They are pickled for the workers.

The producer is not librdkafka, so only the `kafka.…` settings that mean something here are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from penstock.reading.connection import Endpoint
from penstock.records.codecs import Codec
from penstock.security.client_names import SECURITY_PREFIXES
from penstock.spark.errors import WrongOption
from penstock.spark.exactly_once.names import Names
from penstock.spark.options import KAFKA, WRITE_OPTIONS, GivenOptions

__all__ = ["DECISIONS_TOPIC", "SinkSettings"]

DECISIONS_TOPIC: Final = "penstock-spark-decisions"
_PREFIX: Final = "penstock-spark"
_OPTIONS: Final = (*WRITE_OPTIONS, "transactionalIdPrefix", "decisionsTopic")
_BATCH_BYTES: Final = 512 << 10
_BATCH_BYTES_MAX: Final = 64 << 20
#: settings of connections, which `GivenOptions.endpoint` reads
_CONNECTION: Final = ("bootstrap.servers", "client.id", "request.timeout.ms", "default.api.timeout.ms")
#: what the sink does anyway, with the value that it has
_FIXED: Final = {"acks": ("all", "-1"), "enable.idempotence": ("true",), "partitioner": ("murmur2_random",)}
#: They tune queues that the sink does not have. The last names the largest message, which the topic decides.
_NO_EFFECT: Final = (
    "linger.ms",
    "buffer.memory",
    "max.block.ms",
    "delivery.timeout.ms",
    "max.request.size",
    "message.max.bytes",
)


@dataclass(frozen=True, slots=True)
class SinkSettings:
    """Where rows go, and under which names their transactions are found. `parse` makes one."""

    endpoint: Endpoint
    topic: str | None
    names: Names
    decisions_topic: str
    batch_bytes: int
    codec: Codec

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkSettings:
        given = GivenOptions(options, _OPTIONS)
        for name, value in given.kafka().items():
            _check(name.removeprefix(KAFKA), value.strip().lower())
        prefix = given.get("transactionalIdPrefix") or _PREFIX
        if not re.fullmatch(r"[A-Za-z0-9._-]+", prefix):
            raise WrongOption(
                f"transactionalIdPrefix may have letters, digits, '.', '_' and '-', not {prefix!r}"
            )
        batch_bytes = given.positive("kafka.batch.size") or _BATCH_BYTES
        if batch_bytes > _BATCH_BYTES_MAX:
            raise WrongOption(f"kafka.batch.size is at most {_BATCH_BYTES_MAX}, not {batch_bytes}")
        return cls(
            endpoint=given.endpoint(),
            topic=given.get("topic"),
            names=Names(prefix),
            decisions_topic=given.get("decisionsTopic") or DECISIONS_TOPIC,
            batch_bytes=batch_bytes,
            codec=_codec(given.get("kafka.compression.type")),
        )


def _check(name: str, value: str) -> None:
    if name in _CONNECTION or name in _NO_EFFECT or name in ("batch.size", "compression.type"):
        return
    if name.startswith(SECURITY_PREFIXES):
        return
    if name in _FIXED:
        if value not in _FIXED[name]:
            raise WrongOption(f"kafka.{name}={value} does not fit delivery=exactly_once")
        return
    raise WrongOption(
        f"kafka.{name} has no meaning with delivery=exactly_once, which does not use librdkafka"
    )


def _codec(name: str | None) -> Codec:
    labels = {codec.label: codec for codec in Codec}
    found = labels.get((name or Codec.NONE.label).lower())
    if found is None:
        raise WrongOption(f"kafka.compression.type must be one of {', '.join(labels)}, not {name}")
    return found
