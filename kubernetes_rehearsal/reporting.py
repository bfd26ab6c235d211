"""Runs the rehearsal, prints each step, and writes the result file."""

from __future__ import annotations

import json
import time
from pathlib import Path

from kubernetes_rehearsal.release import Release
from kubernetes_rehearsal.scenario import Setting, Step, rehearse
from lab.home import LabError

__all__ = ["report"]


def report(release: Release, setting: Setting, result: Path, until: str) -> int:
    """The exit status. `until` is a word in the name of the last step, or nothing."""
    began_s, steps = time.monotonic(), list[Step]()
    failure = ""
    try:
        for step in rehearse(release, setting, lambda text: print(text, flush=True)):
            print(f"  {step.seconds:6.1f} s  {step.said}", flush=True)
            steps.append(step)
            if until and until in step.name:
                break
    except LabError as error:
        failure = str(error)
        print(f"  failed: {failure}", flush=True)
    took_s = round(time.monotonic() - began_s, 1)
    result.parent.mkdir(parents=True, exist_ok=True)
    found = {"seconds": took_s, "failure": failure, "steps": [step._asdict() for step in steps]}
    result.write_text(json.dumps(found, indent=2) + "\n")
    print(f"{len(steps)} steps in {took_s:g} s; {result}", flush=True)
    return 1 if failure else 0
