"""Jars of Kafka's Java client."""

from __future__ import annotations

import os
from pathlib import Path

from lab.home import REPOSITORY

JARS = Path(os.environ.get("PENSTOCK_LAB") or REPOSITORY / ".lab") / "kafka" / "libs"
