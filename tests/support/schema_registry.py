"""A schema registry of a few lines: schemas by id, behind basic authentication."""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class FakeRegistry:
    """`schemas` by id; `asked` has the paths of all requests, `logins` who asked; `statuses` are answered first."""

    def __init__(self, schemas: Mapping[int, Any], secret: str) -> None:
        self.schemas = schemas
        self.secret = secret
        self.asked: list[str] = []
        self.logins: list[str] = []
        self.statuses: list[int] = []
        self.url = ""

    def answer(self, path: str, authorization: str | None) -> tuple[int, Any]:
        self.asked.append(path)
        if authorization is not None:
            self.logins.append(base64.b64decode(authorization.removeprefix("Basic ")).decode())
        if self.statuses:
            return self.statuses.pop(0), {}
        if authorization != f"Basic {base64.b64encode(self.secret.encode()).decode()}":
            return 401, {"error_code": 401}
        known = {f"/schemas/ids/{number}": schema for number, schema in self.schemas.items()}
        if path not in known:
            return 404, {"error_code": 40403}
        return 200, known[path] if "schemaType" in known[path] else {"schema": json.dumps(known[path])}


@contextmanager
def schema_registry(schemas: Mapping[int, Any], secret: str) -> Iterator[FakeRegistry]:
    registry = FakeRegistry(schemas, secret)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = registry.answer(self.path, self.headers["Authorization"])
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
