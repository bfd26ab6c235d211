"""Brokers in containers: their place in a StatefulSet, their probes, and their end."""
