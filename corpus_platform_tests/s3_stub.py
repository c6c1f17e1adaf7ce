"""A stand-in for S3 on loopback that does wrong what real servers do wrong at bad times.

It keeps objects under any key, lists them in pages, knows ranges and `If-Match`, and asks the test
before each answer: `before` gets the number of the request, counted from 1, and the request.
"""

import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

__all__ = ["Reply", "Request", "S3Stub", "refusal"]

PAGE = 1000


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]

    @property
    def range(self) -> str | None:
        """The range that was asked for."""
        return self.headers.get("range")


@dataclass(frozen=True)
class Reply:
    """An answer. `sends`: after so many bytes of the body the connection ends; `hangs`: it stays."""

    status: int
    headers: dict[str, str]
    body: bytes
    sends: int | None = None
    hangs: bool = False


def refusal(status: int, code: str) -> Reply:
    """Return an error as S3 words it."""
    body = f"<Error><Code>{code}</Code><Message>as told by the server</Message></Error>"
    return Reply(status, {"Content-Type": "application/xml"}, body.encode())


class S3Stub:
    """The server, from `with` on, with one bucket `crawls`.

    `objects` are bodies by key. With `ignores_match` or `ignores_range` it does not know those
    headers. `requests` are all that came, in order.
    """

    def __init__(self) -> None:
        self.reset()
        self._lock, self._stopping = threading.Lock(), threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "S3Stub":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()

    def reset(self) -> None:
        """Be as new: without objects and faults."""
        self.objects: dict[str, bytes] = {}
        self.requests: list[Request] = []
        self.ignores_match = self.ignores_range = False
        self.before: Callable[[int, Request], Reply | None] = lambda number, request: None

    @property
    def ranges(self) -> list[str | None]:
        """What was asked for of objects, in order."""
        return [request.range for request in self.requests if request.key]

    def etag(self, key: str) -> str:
        """Return the ETag of an object as it is."""
        return f'"{hashlib.md5(self.objects[key]).hexdigest()}"'

    def hold(self) -> None:
        """Wait until the server stops, at most half a minute."""
        self._stopping.wait(30.0)

    def answer(self, request: Request) -> Reply:
        """Keep a request; return what it gets."""
        with self._lock:
            self.requests.append(request)
            number = len(self.requests)
        return self.before(number, request) or self.usual(request)

    def usual(self, request: Request) -> Reply:
        """Return what a server without faults answers."""
        if not request.key:
            return self._listing(request.query)
        if request.key not in self.objects:
            return refusal(404, "NoSuchKey")
        etag, data = self.etag(request.key), self.objects[request.key]
        wanted = request.headers.get("if-match")
        if wanted not in (None, etag) and not self.ignores_match:
            return refusal(412, "PreconditionFailed")
        whole = Reply(200, {"ETag": etag}, data)
        if request.range is None or self.ignores_range:
            return whole
        first, _, last = request.range.removeprefix("bytes=").partition("-")
        part = data[int(first) : int(last) + 1]
        if not part:
            return refusal(416, "InvalidRange")
        place = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
        return replace(whole, status=206, body=part, headers={"ETag": etag, "Content-Range": place})

    def _listing(self, query: dict[str, str]) -> Reply:
        keys = sorted(k for k in self.objects if k.startswith(query.get("prefix", "")))
        start = int(query.get("continuation-token", 0))
        rows = "".join(
            f"<Contents><Key>{escape(quote(key, safe='/'))}</Key><ETag>{self.etag(key)}</ETag>"
            f"<Size>{len(self.objects[key])}</Size></Contents>"
            for key in keys[start : start + PAGE]
        )
        more = start + PAGE < len(keys)
        token = f"<NextContinuationToken>{start + PAGE}</NextContinuationToken>" if more else ""
        body = (
            f"<ListBucketResult><EncodingType>url</EncodingType>{token}{rows}"
            f"<IsTruncated>{str(more).lower()}</IsTruncated></ListBucketResult>"
        )
        return Reply(200, {"Content-Type": "application/xml"}, body.encode())


def _handler(stub: S3Stub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # headers and body are two writes

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            key = unquote(parts.path).removeprefix("/crawls").removeprefix("/")
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = stub.answer(Request(self.command, key, query, headers))
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if self.command == "HEAD":
                return
            try:
                self.wfile.write(reply.body[: reply.sends])
            except OSError:  # the client has gone
                self.close_connection = True
            if reply.hangs:
                stub.hold()
            if reply.sends is not None:
                self.close_connection = True

        do_HEAD = do_GET

    return Handler
