"""Metrics and health as text: metric tables, exposition formats, health levels, lag, alert rules, dashboards.

Owns: the names of metrics, the formats, the levels of health. Pure: numbers in, text out.
Imports: `wire`, `model`.
Used by: `broker.monitoring`, which reads the counters of a broker, and the command line.
"""
