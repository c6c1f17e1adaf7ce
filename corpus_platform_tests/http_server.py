"""A web server on loopback that answers as badly as it is told to, over raw sockets.

It serves objects with Range and If-Range as RFC 9110 says. Each request may take one twist from a
list; when the list is empty, or holds None, it is polite. It counts the bytes of bodies it sent.
"""

import contextlib
import re
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

__all__ = ["HttpServer", "Request", "Served", "Twist", "self_signed", "to"]

BLOCK = 32 << 10
OLD = "Mon, 02 Nov 2026 08:00:00 GMT"
NOW = "Mon, 30 Nov 2026 08:00:00 GMT"


@dataclass(frozen=True)
class Served:
    """One state of an object. Without `etag` and `last_modified` nothing names it."""

    data: bytes
    etag: str | None = '"v1"'
    last_modified: str | None = None


@dataclass(frozen=True)
class Twist:
    """What an answer has that a polite one has not.

    `cut` is a position in the object before which the connection breaks. `headers` come in place of
    the usual ones, None takes one away. `raw` is all that is sent. `become` replaces the object.
    """

    status: int | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: bytes | None = None
    cut: int | None = None
    raw: bytes | None = None
    ignore_range: bool = False
    ignore_if_range: bool = False
    chunked: bool = False
    silent_seconds: float = 0.0
    become: Served | None = None


def to(location: str, status: int = 302) -> Twist:
    """Return a redirect."""
    return Twist(status, {"Location": location})


@dataclass(frozen=True)
class Request:
    """A request as it came; names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]


class HttpServer:
    """The server, running within a `with`; `objects` and `twists` may be changed at any time."""

    def __init__(
        self,
        objects: Mapping[str, Served | Twist],
        *twists: Twist | None,
        host: str = "127.0.0.1",
        certificate: Path | None = None,
        bytes_per_second: float | None = None,
    ) -> None:
        self.objects, self.twists = dict(objects), list(twists)
        self.requests: list[Request] = []
        self.sent = 0
        self._rate, self._lock = bytes_per_second, threading.Lock()
        self._socket = socket.create_server((host, 0), backlog=64)
        # Little is under way when a client dies, so that what is counted is what it could read.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 10)
        self._connections: list[socket.socket] = []
        self._tls = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://{host}:{self._socket.getsockname()[1]}"

    def __enter__(self) -> "HttpServer":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in self._connections:  # else one that is kept meets the next server
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection:
                while request := _read_request(connection):
                    with self._lock:
                        self.requests.append(request)
                        twist = (self.twists.pop(0) if self.twists else None) or Twist()
                    if not self._answer(connection, request, twist):
                        return
        except OSError:
            return  # the client went away

    def _answer(self, connection: socket.socket, request: Request, twist: Twist) -> bool:
        """Answer; return whether the connection goes on."""
        path = request.path.partition("?")[0]
        if twist.become is not None:
            self.objects[path] = twist.become
        served = self.objects.get(path, Twist(404, body=b"no such object"))
        if isinstance(served, Twist):
            served, twist = Served(b"", etag=None), served
        time.sleep(twist.silent_seconds)
        if twist.raw is not None:
            connection.sendall(twist.raw)
            return False
        status, headers, body, start = _polite(served, request.headers, twist)
        if twist.chunked:
            headers["Transfer-Encoding"] = "chunked"
            del headers["Content-Length"]
        lines = [f"HTTP/1.1 {status} x", *(f"{k}: {v}" for k, v in headers.items())]
        connection.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        whole = twist.cut is None or twist.cut > start + len(body)
        self._send(connection, body if whole else body[: max((twist.cut or 0) - start, 0)], twist)
        if twist.chunked and whole:
            connection.sendall(b"0\r\n\r\n")
        return whole

    def _send(self, connection: socket.socket, body: bytes, twist: Twist) -> None:
        for at in range(0, len(body), BLOCK):
            block = body[at : at + BLOCK]
            connection.sendall(b"%x\r\n%b\r\n" % (len(block), block) if twist.chunked else block)
            with self._lock:
                self.sent += len(block)
            if self._rate is not None:
                time.sleep(len(block) / self._rate)


def _polite(
    served: Served, asked: Mapping[str, str], twist: Twist
) -> tuple[int, dict[str, str], bytes, int]:
    """Return status, headers, body, and where in the object the body begins."""
    headers = {"Date": NOW, "ETag": served.etag, "Last-Modified": served.last_modified}
    status, body, start = 200, served.data, 0
    wanted = re.fullmatch(r"bytes=(\d+)-", asked.get("range", ""))
    current = asked.get("if-range") in (None, served.etag, served.last_modified)
    if wanted and not twist.ignore_range and (current or twist.ignore_if_range):
        start, size = int(wanted[1]), len(served.data)
        status, body = (206, served.data[start:]) if start < size else (416, b"")
        told = f"{start}-{size - 1}" if start < size else "*"
        headers["Content-Range"] = f"bytes {told}/{size}"
    body = body if twist.body is None else twist.body
    headers["Content-Length"] = str(len(body))
    headers.update(twist.headers)
    kept = {name: value for name, value in headers.items() if value is not None}
    return twist.status or status, kept, body, start


def _read_request(connection: socket.socket) -> Request | None:
    """Return the next request of a connection, None at its end."""
    head = b""
    while b"\r\n\r\n" not in head:
        block = connection.recv(8192)
        if not block:
            return None
        head += block
    first, *lines = head.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    headers = (line.partition(":") for line in lines)
    return Request(first.split(" ")[1], {k.strip().lower(): v.strip() for k, _, v in headers})


def self_signed(folder: Path) -> Path:
    """Make a key and a certificate of 127.0.0.1 that nobody signed, in one file."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    names = ["-subj", "/CN=loopback", "-addext", "subjectAltName=IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command.split(), *names, *files], check=True, capture_output=True)
    certificate.write_bytes(certificate.read_bytes() + key.read_bytes())
    return certificate
