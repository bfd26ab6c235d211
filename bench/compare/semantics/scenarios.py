"""The scenarios: what each asks, how Penstock does it, and the systems that have no such thing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["OBSERVED", "SCENARIOS", "SYSTEMS", "Scenario"]

OBSERVED = "observed"
"""The metric of a scenario in a `Run`: 1 for yes, 0 for no."""

SYSTEMS = {
    "penstock": "Penstock",
    "elasticmq": "SQS in ElasticMQ",
    "moto-sqs": "SQS in moto",
    "moto-sns": "SNS to SQS in moto",
}

_ONE_CONSUMER = "a queue gives each message to one consumer; SNS makes the copies"
_QUEUES = {"elasticmq": _ONE_CONSUMER, "moto-sqs": _ONE_CONSUMER}


@dataclass(frozen=True, slots=True)
class Scenario:
    """A statement that was observed to hold or not. Systems in `without` have no such thing, for a reason."""

    name: str
    statement: str
    ours: str
    """What the Penstock side of the scenario uses."""
    without: Mapping[str, str] = field(default_factory=dict)

    def systems(self) -> list[str]:
        """The systems that run it."""
        return [name for name in SYSTEMS if name not in self.without]


SCENARIOS = (
    Scenario(
        "redelivery",
        "a message without acknowledgement comes again after its visibility timeout, not before",
        "`Queue(visibility_timeout=…)`",
    ),
    Scenario("extension", "extending the timeout keeps the message hidden for longer", "`message.renew()`"),
    Scenario("return", "a message that is given back is available at once", "`message.release()`"),
    Scenario("count", "the consumer is told how often a message was delivered", "`message.delivery_count`"),
    Scenario(
        "dead-letter",
        "after its last allowed delivery a message goes to the dead-letter queue, and comes no more",
        "`max_deliveries=…` and the group's dead-letter topic",
    ),
    Scenario(
        "delayed-queue",
        "a delay of the queue holds back its messages",
        "`penstock.delivery.delay.ms` of a topic",
    ),
    Scenario(
        "delayed-message",
        "a delay of one message holds back that message, and not the next one",
        "`send(…, delay=…)` to a delay topic",
        {"moto-sns": "SNS has no delay of a message"},
    ),
    Scenario(
        "order",
        "FIFO: messages of one message group (key) come in the order in which they were sent",
        "keys and `Consumer`",
    ),
    Scenario(
        "held-back",
        "FIFO: the next message of a group (key) waits for the one before, and other groups do not wait",
        'keys and `Consumer.run(style="parallel")`',
    ),
    Scenario(
        "de-duplication",
        "FIFO: a message that is sent again with the same id is processed once",
        "`Consumer(idempotent_key=…)`",
    ),
    Scenario(
        "fan-out", "each subscribed queue (group) gets every message", "several groups on a topic", _QUEUES
    ),
    Scenario(
        "filter",
        "a filter policy keeps messages from a subscriber",
        "no equivalent",
        {"penstock": "a consumer filters by itself, or there is a topic for each kind of message", **_QUEUES},
    ),
    Scenario(
        "late-subscriber",
        "a subscriber that comes later gets older messages (SNS: of a standard topic)",
        'a new group, `reset="earliest"`',
        _QUEUES,
    ),
)
