"""Client quotas: which quota applies to a client, how its rate is measured, and for how long it is throttled.

Pure: values and times come in, throttle times go out. The arithmetic is that of Kafka's ClientQuotaManager,
so that a client sees the same throttle times from both brokers.
"""
