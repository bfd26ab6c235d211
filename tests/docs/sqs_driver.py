"""Runs the programs of the SQS guide with moto: `python sqs_driver.py BOOTSTRAP`, with a Python that has it.

The code comes in as JSON on standard input, the result goes to standard output.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any


def main(bootstrap: str, before: str, bridge: str) -> dict[str, Any]:
    moto: Any = import_module("moto")
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with moto.mock_aws():
        names: dict[str, Any] = {}
        exec(before, names)
        exec(bridge, names)
        sqs = names["sqs"]
        url = sqs.create_queue(QueueName="images", Attributes={"VisibilityTimeout": "0"})["QueueUrl"]
        names["send"](url, ["a", "b"])
        worked = sorted(names["work"](url, 2))
        names["send"](url, [str(number) for number in range(25)])
        killed = _killed(names, sqs, url, bootstrap)
        copied = names["bridge"](url, bootstrap, "images", idle_polls=2)
    return {"worked": worked, "killed": killed, "copied": copied}


def _killed(names: dict[str, Any], sqs: Any, url: str, bootstrap: str) -> bool:
    """Let the bridge die between its acknowledgement and the deletion of the second batch."""
    deletions, delete = [], sqs.delete_message

    def dying(**options: Any) -> Any:
        deletions.append(options)
        if len(deletions) > 13:
            raise KeyboardInterrupt
        return delete(**options)

    sqs.delete_message = dying
    try:
        names["bridge"](url, bootstrap, "images", idle_polls=2)
    except KeyboardInterrupt:
        return True
    finally:
        sqs.delete_message = delete
    return False


if __name__ == "__main__":
    code = json.load(sys.stdin)
    print(json.dumps(main(sys.argv[1], code["before"], code["bridge"])))
