"""GPU telemetry: what is measured, how a measurement travels, and the collectors that send it.

`fields` is the one table of metrics, `message` the one form in which a sample travels. A collector
(`simulate`, `replay`, `scrape`, `nvml`) turns what it reads into samples and hands them to an `outlet`; none
of them knows another. Brokers are known from the wire only: any cluster that speaks Kafka's protocol will do.
"""
