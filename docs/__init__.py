"""The documentation, and what renders the pages that come from code."""
