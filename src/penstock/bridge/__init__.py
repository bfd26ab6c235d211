"""Copies messages between another system (NATS JetStream, AMQP 0-9-1, SQS) and a topic, at least once.

A message is acknowledged at its source only after the target has acknowledged the copy. Each copy has a
de-duplication key, so that consumers can recognise a message that was copied twice.

- `message`, `mapping`, `sqs_mapping`, `window`, `offsets` and `tally` do no I/O: headers, keys, messages in
  flight.
- `copying` is the loop between a `Source` and a `Target` (`ports`).
- `returning` finds copies that would go back to where they came from.
- `topic` is the Kafka side; `nats_streams`, `amqp_queues` and `sqs_queues` are the others. Each imports its
  client library, which the extra `bridge` installs, when a connection is opened.

Imports: `client` and `model`.
Used by: `cli` (`penstock bridge`).
"""
