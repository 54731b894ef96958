"""HTTP requests: where a password goes when a server answers that the content is elsewhere."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from klamm.runtime.http import http_get

HEADERS = {"Authorization": "Basic canary", "Accept": "text/plain"}


class Server:
    """Answers `/here` itself and redirects other paths to `elsewhere`; `cuts` answers off. `seen` has the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.elsewhere = ""
        self.cuts = False
        self.seen: list[tuple[str | None, str | None]] = []


@contextmanager
def http_server() -> Iterator[Server]:
    state = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.seen.append((self.headers["Authorization"], self.headers["Accept"]))
            self.send_response(200 if self.path == "/here" else 302)
            self.send_header("Location", state.elsewhere)
            self.send_header("Content-Length", "9" if state.cuts else "4")
            self.end_headers()
            self.wfile.write(b"done")

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def servers() -> Iterator[tuple[Server, Server]]:
    with ExitStack() as running:
        yield running.enter_context(http_server()), running.enter_context(http_server())


@pytest.mark.parametrize(("is_other", "expected"), [(True, None), (False, "Basic canary")], ids=["other", "same"])
def test_a_password_follows_a_redirect_only_to_the_same_server(
    servers: tuple[Server, Server], is_other: bool, expected: str | None
) -> None:
    first, other = servers
    target = other if is_other else first
    first.elsewhere = f"{target.url}/here"

    assert http_get(f"{first.url}/there", HEADERS, 10.0) == (200, b"done")
    assert first.seen[0] == ("Basic canary", "text/plain")
    assert target.seen[-1] == (expected, "text/plain")


def test_an_answer_that_is_cut_off_is_an_os_error(servers: tuple[Server, Server]) -> None:
    servers[0].cuts = True

    with pytest.raises(OSError, match="incomplete"):
        http_get(f"{servers[0].url}/here", HEADERS, 10.0)
