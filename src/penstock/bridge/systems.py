"""The systems that bridges connect: each has a module with its source and its target, and a command."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["System"]


class System(StrEnum):
    """The systems that a bridge connects."""

    KAFKA = "kafka"
    NATS = "nats"
    AMQP = "amqp"
    SQS = "sqs"
