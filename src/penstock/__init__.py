"""Penstock: a distributed message queue in Python that speaks the Kafka wire protocol."""

__version__ = "0.1.0"
__all__ = ["__version__"]
