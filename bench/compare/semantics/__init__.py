"""The semantics of SQS and SNS beside those of Penstock: small scenarios that run, and what was observed.

`scenarios` lists them, `aws` runs them with boto3 against emulators, `ours` with Penstock's clients, `runner`
starts the servers and records, `section` renders. Emulators say nothing about speed, so nothing is timed.
"""
