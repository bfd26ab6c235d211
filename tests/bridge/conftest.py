"""The other systems, one server each for all tests of the bridge."""

from __future__ import annotations

from tests.other_systems import amqp_url, aws_url, elasticmq_url, moto_url, nats_url, sqs_url

__all__ = ["amqp_url", "aws_url", "elasticmq_url", "moto_url", "nats_url", "sqs_url"]
