"""A directory as an object store that has the part of S3 that readers of tables use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["BUCKET", "KEY_ID", "SECRET_IN", "serving"]

BUCKET, KEY_ID = "fleet", "reader-of-tables"
#: the environment variable that the test sets to any secret
SECRET_IN = "STORE_SECRET"


@contextmanager
def serving(folder: Path) -> Iterator[list[str]]:
    """The files below `folder` as a bucket: yields the `KEY=VALUE` options by which it is reached."""
    # Longer than other functions because it has the handler class, which needs the folder.

    class Objects(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            requested = urlsplit(self.path)
            if f"Credential={KEY_ID}/" not in self.headers.get("Authorization", ""):
                self._answer(403, b"<Error><Code>AccessDenied</Code></Error>")
            elif (key := unquote(requested.path).removeprefix(f"/{BUCKET}").strip("/")) == "":
                query = {name: values[0] for name, values in parse_qs(requested.query).items()}
                self._answer(200, _listing(folder, query.get("prefix", ""), query.get("start-after", "")))
            elif (path := folder / key).is_file():
                self._send_part(path.read_bytes())
            else:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

        do_HEAD = do_GET

        def _send_part(self, data: bytes) -> None:
            first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
            start = int(first) if first else len(data) - int(last)
            end = int(last) + 1 if first and last else len(data)
            span = {"Content-Range": f"bytes {start}-{min(end, len(data)) - 1}/{len(data)}"}
            self._answer(206, data[start:end], span) if "Range" in self.headers else self._answer(200, data)

        def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            fields = {
                "Content-Length": str(len(body)),
                "ETag": '"1"',
                "Last-Modified": formatdate(usegmt=True),
            }
            for name, value in (fields | (headers or {})).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Not read."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Objects) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield [
                f"AWS_ENDPOINT_URL=http://127.0.0.1:{server.server_port}",
                f"AWS_ACCESS_KEY_ID={KEY_ID}",
                f"AWS_SECRET_ACCESS_KEY=${{env:{SECRET_IN}}}",
                "AWS_REGION=eu-central-1",
                "AWS_ALLOW_HTTP=true",
            ]
        finally:
            server.shutdown()
            thread.join()


def _listing(folder: Path, prefix: str, after: str) -> bytes:
    keys = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    entries = "".join(
        f"<Contents><Key>{escape(key)}</Key><Size>{(folder / key).stat().st_size}</Size>"
        '<LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>"1"</ETag></Contents>'
        for key in keys
        if key.startswith(prefix) and key > after
    )
    return f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()
