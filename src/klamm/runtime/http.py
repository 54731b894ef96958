"""HTTP requests from code without an event loop: Spark's Python workers."""

import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit


class HttpAnswer(NamedTuple):
    """The status and the body of a response."""

    status: int
    body: bytes


def split_url(text: str) -> SplitResult:
    """Return the parts of a URL. Raises ValueError."""
    return urlsplit(text)


def http_get(url: str, headers: Mapping[str, str], timeout_s: float) -> HttpAnswer:
    """Return the answer to a GET request, whatever its status. Raises OSError where there is none."""
    request = urllib.request.Request(url, headers=dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=timeout_s) as response:
            return HttpAnswer(response.status, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return HttpAnswer(error.code, error.read())
