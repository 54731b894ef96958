"""HTTP requests from code without an event loop: Spark's Python workers."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit


class HttpAnswer(NamedTuple):
    """The status and the body of a response."""

    status: int
    body: bytes


def split_url(text: str) -> SplitResult:
    """Return the parts of a URL. Raises ValueError."""
    return urlsplit(text)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects; a password goes only to the server for which it was given."""

    def redirect_request(self, req: urllib.request.Request, *answer: Any) -> urllib.request.Request | None:
        """Return the request to the new address; None where the status is no redirect of a GET request."""
        found = super().redirect_request(req, *answer)
        if found is not None and _server_of(found) != _server_of(req):
            found.remove_header("Authorization")
        return found


_OPENER: Final = urllib.request.build_opener(_Redirects)


def _server_of(request: urllib.request.Request) -> tuple[str, str]:
    """Scheme, host and port of a request."""
    parts = urlsplit(request.full_url)
    return parts.scheme, parts.netloc


def http_get(url: str, headers: Mapping[str, str], timeout_s: float) -> HttpAnswer:
    """Return the answer to a GET request, whatever its status. Raises OSError where there is none."""
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with _OPENER.open(request, timeout=timeout_s) as response:
            return HttpAnswer(response.status, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return HttpAnswer(error.code, error.read())
    except HTTPException as error:
        raise OSError(f"the answer is incomplete or not HTTP ({error!r})") from error
