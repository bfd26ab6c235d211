"""The REST API over the pipeline's tables: `build_app` makes it, `serve` runs it.

`parameters` checks requests, `penstock.telemetry.queries` answers them, and every error is a problem document
(`problems`).

Imports: `telemetry.queries`, FastAPI.
Used by: `penstock telemetry serve`.
"""

from penstock.telemetry.api.application import build_app
from penstock.telemetry.api.server import serve

__all__ = ["build_app", "serve"]
