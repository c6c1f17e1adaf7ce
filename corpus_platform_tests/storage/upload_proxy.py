"""Stands before a real S3 server and does to uploads what networks and busy servers do.

The test is asked before each request is passed on, and before each answer is.
"""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

__all__ = ["Drop", "Passing", "UploadProxy"]


@dataclass(frozen=True)
class Passing:
    """One request: what it asks for, such as `PUT part 2`, `POST complete` or `HEAD`."""

    what: str
    number: int  # of requests for just that, from 1


class Drop(Exception):
    """Raised by a test: the connection ends without an answer."""


class UploadProxy:
    """The proxy, from `with` on. `requests` are all that came, in order.

    `before` may return the status and code of a refusal, `change` the body to pass on instead;
    `after` is called when the server has answered.
    """

    def __init__(self, port: int) -> None:
        self.server_port = port
        self.requests: list[str] = []
        self.before: Callable[[Passing], tuple[int, str] | None] = lambda passing: None
        self.change: Callable[[Passing, bytes], bytes] = lambda passing, body: body
        self.after: Callable[[Passing], None] = lambda passing: None
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> "UploadProxy":
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def came(self, method: str, path: str) -> Passing:
        """Keep a request."""
        query = parse_qs(urlsplit(path).query, keep_blank_values=True)
        what = method
        if "partNumber" in query:
            what += f" part {query['partNumber'][0]}"
        elif "uploads" in query:
            what += " begin" if method == "POST" else " uploads"
        elif "uploadId" in query:
            what += {"POST": " complete", "DELETE": " abort", "GET": " parts"}[method]
        with self._lock:
            self.requests.append(what)
            return Passing(what, self.requests.count(what))


def _handler(proxy: UploadProxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def _pass_on(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            passing = proxy.came(self.command, self.path)
            try:
                refusal = proxy.before(passing)
                if refusal is not None:
                    text = f"<Error><Code>{refusal[1]}</Code><Message>m</Message></Error>"
                    self._answer(refusal[0], [], text.encode())
                    return
                status, headers, answer = self._ask(proxy.change(passing, body))
                proxy.after(passing)
                self._answer(status, headers, answer)
            except (Drop, OSError):
                self.close_connection = True

        def _ask(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            server = http.client.HTTPConnection("127.0.0.1", proxy.server_port, timeout=60)
            server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("expect", "connection"):
                    server.putheader(name, value)
            server.endheaders(body or None)
            answer = server.getresponse()
            got = answer.status, answer.getheaders(), answer.read()
            server.close()
            return got

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            kept = {name.lower(): value for name, value in headers}
            length = kept.pop("content-length", None) if self.command == "HEAD" else None
            for name, value in kept.items():
                if name not in ("transfer-encoding", "connection", "content-length", "date"):
                    self.send_header(name, value)
            self.send_header("Content-Length", length or str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on

    return Handler
