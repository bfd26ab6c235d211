"""A small schema registry over HTTP, with the answers of Confluent's REST API. It checks Avro records only.

Deletion is soft until it is permanent, and refused while another schema refers to it.
"""

from __future__ import annotations

import json
import re
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["Registry", "registry_server"]

_MISSING_SUBJECT = (404, {"error_code": 40401, "message": "Subject not found."})
_MISSING_VERSION = (404, {"error_code": 40402, "message": "Version not found."})
_MISSING_SCHEMA = (404, {"error_code": 40403, "message": "Schema not found"})


class Registry:
    """The state of a registry. Each version is (id, deleted)."""

    def __init__(self) -> None:
        self.url = ""
        self.user: str | None = None
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, dict[int, list[Any]]] = {}
        self.level = "BACKWARD"
        self.levels: dict[str, str] = {}
        self.requested: list[str] = []
        #: authorization headers
        self.seen: set[str | None] = set()
        self.lock = threading.RLock()

    def add(self, subject: str, schema: object, kind: str = "AVRO", *references: dict[str, Any]) -> int:
        """The number of a schema that is a new version of a subject."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._register(subject, {"schema": text, "schemaType": kind, "references": list(references)})

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        entry = {"schema": body["schema"], "references": body.get("references") or []}
        if body.get("schemaType", "AVRO") != "AVRO":
            entry["schemaType"] = body["schemaType"]
        number = next((n for n, each in self.schemas.items() if each == entry), None)
        if number is None:
            number = len(self.schemas) + 1
            self.schemas[number] = entry
        versions = self.subjects.setdefault(subject, {})
        same = [v for v, (n, gone) in versions.items() if n == number and not gone]
        if not same:
            versions[max(versions, default=0) + 1] = [number, False]
        return number

    # -- the API

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> tuple[int, Any]:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        deleted = query.get("deleted") == "true"
        with self.lock:
            match method, parts:
                case "GET", ["subjects"]:
                    return 200, [s for s in self.subjects if self._live(s) or deleted]
                case "GET", ["schemas", "ids", number]:
                    found = self.schemas.get(int(number))
                    return (200, found) if found is not None else _MISSING_SCHEMA
                case "GET", ["schemas", "ids", number, "versions"]:
                    return 200, self._uses(int(number))
                case _, ["config", *subject]:
                    return self._config(method, subject[0] if subject else None, body)
                case "POST", ["compatibility", "subjects", subject, "versions"]:
                    return self._compatibility(subject, body)
                case _, ["subjects", subject, *rest]:
                    if subject not in self.subjects and (method, rest) != ("POST", ["versions"]):
                        return _MISSING_SUBJECT
                    return self._subject(method, subject, rest, deleted, query, body)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _subject(
        self, method: str, subject: str, rest: list[str], deleted: bool, query: dict[str, str], body: Any
    ) -> tuple[int, Any]:
        match method, rest:
            case "POST", ["versions"]:
                problem = self._problem(subject, body)
                if problem is not None:
                    return problem
                return 200, {"id": self._register(subject, body)}
            case "POST", []:
                for version, (number, gone) in self.subjects[subject].items():
                    if not gone and self.schemas[number]["schema"] == body["schema"]:
                        return 200, {"subject": subject, "version": version, "id": number}
                return _MISSING_SCHEMA
            case "GET", ["versions"]:
                versions = list(self.subjects[subject]) if deleted else self._live(subject)
                return (200, versions) if versions else _MISSING_SUBJECT
            case "GET", ["versions", version]:
                return self._version(subject, version, deleted)
            case "GET", ["versions", version, "referencedby"]:
                wanted = (subject, int(version))
                return 200, [
                    number
                    for number, each in self.schemas.items()
                    if wanted in [(r["subject"], r["version"]) for r in each["references"]]
                ]
            case "DELETE", []:
                return self._delete(subject, list(self.subjects[subject]), query)
            case "DELETE", ["versions", version]:
                return self._delete(subject, [int(version)], query)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _live(self, subject: str) -> list[int]:
        return [version for version, (_, gone) in self.subjects[subject].items() if not gone]

    def _uses(self, wanted: int) -> list[dict[str, Any]]:
        return [
            {"subject": subject, "version": version}
            for subject, versions in self.subjects.items()
            for version, (number, gone) in versions.items()
            if number == wanted and not gone
        ]

    def _version(self, subject: str, text: str, deleted: bool) -> tuple[int, Any]:
        versions = self.subjects[subject]
        shown = list(versions) if deleted else self._live(subject)
        version = max(shown, default=-1) if text == "latest" else int(text)
        if version not in shown:
            return _MISSING_VERSION
        number = versions[version][0]
        return 200, {"subject": subject, "version": version, "id": number, **self.schemas[number]}

    def _config(self, method: str, subject: str | None, body: Any) -> tuple[int, Any]:
        if method == "PUT":
            if subject is None:
                self.level = body["compatibility"]
            else:
                self.levels[subject] = body["compatibility"]
            return 200, body
        if subject is None:
            return 200, {"compatibilityLevel": self.level}
        if subject not in self.levels:
            return 404, {"error_code": 40408, "message": "Subject does not have its own level"}
        if method == "DELETE":
            return 200, {"compatibilityLevel": self.levels.pop(subject)}
        return 200, {"compatibilityLevel": self.levels[subject]}

    def _problem(self, subject: str, body: Any) -> tuple[int, Any] | None:
        if body.get("schemaType", "AVRO") == "PROTOBUF":
            invalid = "message" not in body["schema"] and not _is_descriptor(body["schema"])
        else:
            try:
                invalid = not isinstance(json.loads(body["schema"]), dict | str)
            except ValueError:
                invalid = True
        if invalid:
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        if self._conflicts(subject, body):
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        return None

    def _conflicts(self, subject: str, body: Any) -> list[str]:
        """Backward: fields without a default that are new to the newest version of a record."""
        live = self._live(subject) if subject in self.subjects else []
        if not live or self.levels.get(subject, self.level) == "NONE" or "schemaType" in body:
            return []
        newest = json.loads(self.schemas[self.subjects[subject][max(live)][0]]["schema"])
        known = {field["name"] for field in newest.get("fields", [])}
        new = json.loads(body["schema"]).get("fields", [])
        return [
            f"READER_FIELD_MISSING_DEFAULT_VALUE: {field['name']}"
            for field in new
            if field["name"] not in known and "default" not in field
        ]

    def _compatibility(self, subject: str, body: Any) -> tuple[int, Any]:
        if subject not in self.subjects or not self._live(subject):
            return _MISSING_SUBJECT
        problem = self._problem(subject, body)
        if problem is not None and problem[0] == 422:
            return problem
        conflicts = self._conflicts(subject, body)
        return 200, {"is_compatible": not conflicts, "messages": conflicts}

    def _delete(self, subject: str, versions: list[int], query: dict[str, str]) -> tuple[int, Any]:
        if query.get("permanent") == "true":
            for version in versions:
                del self.subjects[subject][version]
            if not self.subjects[subject]:
                del self.subjects[subject]
            return 200, versions
        for version in versions:
            number = self.subjects[subject][version][0]
            wanted = (subject, version)
            for each in self.schemas.values():
                if wanted in [(r["subject"], r["version"]) for r in each["references"]]:
                    text = f"One or more references exist to the schema {number}"
                    return 422, {"error_code": 42206, "message": text}
            self.subjects[subject][version][1] = True
        return 200, versions


def _is_descriptor(text: str) -> bool:
    """Whether it is the base64 of a file's descriptor, which begins with the name of the file."""
    try:
        return b64decode(text, validate=True).startswith(b"\n")
    except ValueError:
        return False


@contextmanager
def registry_server(registry: Registry | None = None) -> Iterator[Registry]:
    state = Registry() if registry is None else registry

    class Api(BaseHTTPRequestHandler):
        def answer(self) -> None:
            state.requested.append(f"{self.command} {self.path}")
            given = self.headers.get("Authorization")
            state.seen.add(given)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            if state.user is not None and not re.fullmatch(r"Basic \S+", given or ""):
                found: tuple[int, Any] = 401, {"error_code": 401, "message": "Unauthorized"}
            elif state.user is not None and b64decode(given.split()[1]).decode() != state.user:  # type: ignore[union-attr]
                found = 403, {"error_code": 403, "message": f"not allowed: {given}"}
            else:
                found = state.answer(self.command, parts.path, query, body)
            data = json.dumps(found[1]).encode()
            self.send_response(found[0])
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield state
        finally:
            server.shutdown()
            thread.join()
