"""Tests of brokers in containers."""
