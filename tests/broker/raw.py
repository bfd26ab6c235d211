"""The client of the tests of brokers."""

from lab.raw_client import RawClient

__all__ = ["RawClient"]
