"""Client quotas: which quota applies to a client, how its rate is measured, and for how long it is throttled.

Owns: the quotas of users, clients and addresses, and the arithmetic of Kafka's ClientQuotaManager: a client
sees the same throttle times from both brokers. Pure: values and times in, throttle times out.
Imports: `model`.
Used by: `metadata`, `net` (rates of connections), the broker's `base` and `request`.
"""
