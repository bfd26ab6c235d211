"""Causes faults on a real cluster, and sees a real Prometheus fire the alert of each, and resolve it."""
