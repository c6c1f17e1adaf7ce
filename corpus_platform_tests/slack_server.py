"""A stand-in for Slack on loopback: a real HTTP server that takes chat.postMessage and keeps it.

It answers what it is told to answer, next or from then on: it takes the message, has a fault, asks
to wait, refuses, or hangs. What it took is what a channel would show.
"""

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

__all__ = ["Answer", "Request", "SlackServer", "fault", "hang", "ok", "refuse", "wait"]

HANG_SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    """What a request gets. `hangs`: nothing, until the server stops."""

    status: int = 200
    body: str = '{"ok": true, "channel": "C1", "ts": "1.0"}'
    retry_after: str | None = None
    hangs: bool = False

    @property
    def takes(self) -> bool:
        """Whether the message then stands in the channel."""
        return self.status == 200 and not self.hangs and json.loads(self.body)["ok"]


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    path: str
    token: str
    body: dict[str, object]
    answer: Answer

    @property
    def text(self) -> str:
        """The text to be posted."""
        return str(self.body["text"])


ok = Answer()
fault = Answer(500, "out of order")
hang = Answer(hangs=True)


def wait(seconds: str) -> Answer:
    """Return HTTP 429 with Retry-After."""
    return Answer(429, '{"ok": false, "error": "ratelimited"}', retry_after=seconds)


def refuse(error: str) -> Answer:
    """Return a refusal as Slack words it, with HTTP 200."""
    return Answer(200, json.dumps({"ok": False, "error": error}))


class SlackServer:
    """The server, from `with` on. `requests` are all that came, in order."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self._next: list[Answer] = []
        self._usual = ok
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    def answer(self, usual: Answer, *first: Answer) -> None:
        """Give the answers `first` to the next requests, and `usual` to those after them."""
        with self._lock:
            self._next, self._usual = list(first), usual

    @property
    def base_url(self) -> str:
        """Where its API is, also while it is stopped."""
        return f"http://127.0.0.1:{self._port}/api/"

    @property
    def texts(self) -> list[str]:
        """The texts that stand in the channel, oldest first."""
        return [r.text for r in self.requests if r.answer.takes]

    def start(self) -> None:
        """Listen, on the port of before if there was one."""
        self._stopping.clear()
        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        """Stop listening: connections are refused."""
        self._stopping.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def __enter__(self) -> "SlackServer":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def take(self, path: str, token: str, body: dict[str, object]) -> Answer:
        """Keep a request; return what it gets."""
        with self._lock:
            answer = self._next.pop(0) if self._next else self._usual
            self.requests.append(Request(path, token, body, answer))
        if answer.hangs:
            self._stopping.wait(HANG_SECONDS)
        return answer


def _handler(slack: SlackServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            token = self.headers.get("Authorization", "").removeprefix("Bearer ")
            answer = slack.take(self.path, token, body)
            if answer.hangs:
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer.body)))
            if answer.retry_after is not None:
                self.send_header("Retry-After", answer.retry_after)
            self.end_headers()
            self.wfile.write(answer.body.encode())

    return Handler
