"""GPU telemetry: metrics, the format of samples, and the collectors that send them.

`fields` is the table of metrics, `message` the format of a sample in a topic. A collector (`simulate`,
`replay`, `scrape`, `nvml`) turns its input into samples and passes them to an `outlet`. Collectors do not
depend on each other. They use Kafka's protocol only, so any Kafka cluster will do.

Imports: `jobs`, `spark`, `reading`, `security` and `model`. Import contracts keep brokers out.
Used by: `penstock telemetry`.
"""
