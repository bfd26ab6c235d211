"""A log against a model that is a list of batches; see `tests.storage.log_machine`."""

from __future__ import annotations

from hypothesis import settings

from tests.amounts import amount
from tests.storage.log_machine import LogMachine

TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=amount(120), stateful_step_count=50, deadline=None, derandomize=True
)
