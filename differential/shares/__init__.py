"""Bad input to the APIs of share groups, on Penstock and on Apache Kafka.

`python -m differential.shares` runs the table on both, records Kafka's outcomes in `kafka.json`, and sends
random requests to both. The tests run the table on Penstock.
"""
