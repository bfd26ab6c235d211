"""A report of the fleet in a folder: tables as CSV, plots as PNG, and a page in Markdown that shows both.

Imports: `telemetry.queries`, matplotlib.
Used by: `penstock telemetry report`.
"""

from penstock.telemetry.report.sections import Section, cells
from penstock.telemetry.report.writing import Report, write_report

__all__ = ["Report", "Section", "cells", "write_report"]
