"""The composition root: builds a broker from its config, starts it and stops it.

Owns: `Broker` and its parts, the tables of handlers, the server process, registration and heartbeats,
maintenance tasks, the topics that the config declares.
Imports: every package of `broker`. No other package imports it.
Used by: `penstock.cli` and `penstock.testing`.
"""
