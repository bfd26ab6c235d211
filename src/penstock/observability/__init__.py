"""Metrics and health as text: metric tables, exposition formats, health levels, lag, alert rules, dashboards.

Pure: numbers in, text out. The broker's adapter, which reads its own counters, is
`penstock.broker.monitoring`.
"""
