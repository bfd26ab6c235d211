"""Reads objects of Kubernetes' API as the service account of this pod.

Reads only: what Penstock does to a cluster of brokers follows from what users ask Kubernetes for.
"""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from penstock.cli.failure import Failure

__all__ = ["ACCOUNT", "KubernetesApi", "Unreachable"]

#: where a pod finds the token of its service account
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_TIMEOUT_S: Final = 5.0
_LARGEST: Final = 16 << 20


class Unreachable(Failure):
    """The API server does not answer, or refuses the request."""


class KubernetesApi:
    """The API server of the cluster in which this pod runs."""

    def __init__(self, environment: Mapping[str, str] = os.environ, account: Path = ACCOUNT) -> None:
        self._host = environment.get("KUBERNETES_SERVICE_HOST", "")
        self._port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        self._account = account

    @property
    def is_there(self) -> bool:
        """Whether this process runs in a pod with a service account."""
        return bool(self._host) and (self._account / "token").is_file()

    def get(self, path: str) -> dict[str, Any] | None:
        """The object at a path such as `/api/v1/nodes/NAME`; None if there is no such object."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            # The token changes while the pod runs, so it is read each time.
            token = (self._account / "token").read_text(encoding="ascii").strip()
            context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
            request = Request(
                f"https://{host}:{self._port}{path}",
                headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            )
            with urlopen(request, timeout=_TIMEOUT_S, context=context) as response:
                found = json.loads(response.read(_LARGEST))
        except HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise Unreachable(f"Kubernetes' API refuses {path}: {error.code} {error.reason}") from error
        except (URLError, OSError, ValueError) as error:
            reason = error.reason if isinstance(error, URLError) else error
            raise Unreachable(f"Kubernetes' API at {host}:{self._port} does not answer: {reason}") from error
        if not isinstance(found, dict):
            raise Unreachable(f"Kubernetes' API answers {path} with something else than an object")
        return found
