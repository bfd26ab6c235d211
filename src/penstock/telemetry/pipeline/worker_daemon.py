"""The parent of the Python workers of the pipeline, which imports the modules of its tasks, too."""

from __future__ import annotations

from penstock.jobs import worker_daemon

__all__ = ["preload", "preload_planning"]


def preload() -> None:
    """Import what a task of the pipeline uses."""
    worker_daemon.preload()
    import penstock.telemetry.pipeline.tasks  # noqa: F401


def preload_planning() -> None:
    """Import what Spark's Python processes use on the driver, too."""
    worker_daemon.preload_planning()
    preload()


if __name__ == "__main__":
    worker_daemon.run(preload)
