"""The systems that the migration guides are about, one server each."""

from __future__ import annotations

from tests.other_systems import amqp_url, aws_url, elasticmq_url, moto_url, nats_url, sqs_url

__all__ = ["amqp_url", "aws_url", "elasticmq_url", "moto_url", "nats_url", "sqs_url"]
