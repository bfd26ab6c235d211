"""Other people's tests, run against our broker.

`python -m conformance` runs the C tests of librdkafka and the integration tests of kafka-python, one verdict
per test, and compares them with `results.json`, the recorded scoreboard. The scoreboard only ever improves: a
test recorded as passed that fails (twice) is a regression and ends the run with 1. `docs/conformance.md` is
rendered from the record and nothing else; `reference.json` holds the same suites' verdicts on Apache Kafka.
"""
