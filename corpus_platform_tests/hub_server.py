"""A stand-in for the Hugging Face hub on loopback: the part of its HTTP API that datasets need.

Revisions, trees in pages linked by `Link`, and files: small ones at once, those of the large-file
store by a redirect to a second server, which wants the signature of the redirect and refuses a
token, as the storage behind the hub does. Both serve ranges.
"""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

__all__ = ["Hub", "Request", "serve"]

_LARGE = (".parquet", ".gz", ".zst", ".txt")  # as a repository's .gitattributes would say
_SIGNATURE = "Signature=5ec2e7"


class Request(NamedTuple):
    """A request as it came: to the hub or to the storage behind it (`cdn`)."""

    server: str
    target: str
    token: str | None
    range: str | None


class Reply(NamedTuple):
    """What a request gets."""

    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


_Answer = Callable[["Hub", str, str | None], Reply]  # of a target and a token


@dataclass
class Hub:
    """One dataset on a hub. `token`: what its files want; `private`: its lists want it too.

    `page_size` rows are on a page of a tree. `next_host` stands in links to the next page instead
    of the own address. `requests` are all that came, in order.
    """

    repository: str
    token: str | None
    private: bool
    page_size: int
    endpoint: str = ""
    cdn: str = ""
    next_host: str | None = None
    requests: list[Request] = field(default_factory=list)
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    commit: str = ""

    def push(self, files: Mapping[str, bytes]) -> str:
        """Make these the files of `main`; return the commit."""
        told = "".join(f"{path} {git_oid(files[path])}\n" for path in sorted(files))
        self.commit = hashlib.sha1(f"{len(self.commits)}\n{told}".encode()).hexdigest()
        self.commits[self.commit] = dict(files)
        return self.commit

    def tokens(self, server: str) -> set[str | None]:
        """Return the tokens that came with requests to `hub` or `cdn`."""
        return {request.token for request in self.requests if request.server == server}


@contextlib.contextmanager
def serve(
    files: Mapping[str, bytes],
    *,
    repository: str = "owner/data",
    token: str | None = None,
    private: bool = False,
    page_size: int = 1000,
) -> Generator[Hub]:
    """Serve a dataset of these files; its `endpoint` is what HF_ENDPOINT is to be."""
    hub = Hub(repository, token, private, page_size)
    hub.push(files)
    with (
        _listening(hub, "hub", _answer) as hub.endpoint,
        _listening(hub, "cdn", _object) as hub.cdn,
    ):
        yield hub


def git_oid(data: bytes) -> str:
    """Return git's hash of a file."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _answer(hub: Hub, target: str, token: str | None) -> Reply:
    """Answer as the hub: `/api/datasets/…` and `/datasets/…/resolve/…`."""
    parts = urlsplit(target)
    if token is not None and token != hub.token:
        return _refusal(401, "", "Invalid credentials in Authorization header")
    match = re.fullmatch(
        rf"(?:/api)?/datasets/{re.escape(hub.repository)}/(revision|tree|resolve)/([^/]+)(?:/(.+))?",
        parts.path,
    )
    if match is None or (hub.private and token is None):
        return _refusal(401, "RepoNotFound", "Invalid username or password.")
    kind, revision, path = match[1], unquote(match[2]), unquote(match[3] or "")
    commit = hub.commit if revision == "main" else revision
    if commit not in hub.commits:
        return _refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
    if kind == "revision":
        return _json({"_id": "0", "id": hub.repository, "sha": commit})
    if kind == "tree":
        return _tree(hub, commit, path, target)
    if hub.token is not None and token is None:
        return _refusal(401, "GatedRepo", "Access to this dataset is restricted.")
    return _resolve(hub, commit, path)


def _tree(hub: Hub, commit: str, folder: str, target: str) -> Reply:
    rows = _rows(hub.commits[commit], folder)
    if not rows:
        return _refusal(404, "EntryNotFound", f"{folder} does not exist on {commit}")
    start = int(parse_qs(urlsplit(target).query).get("cursor", ["0"])[0])
    end = start + hub.page_size
    where = (hub.next_host or hub.endpoint) + urlsplit(target).path
    link = f'<{where}?recursive=true&cursor={end}>; rel="next"'
    return _json(rows[start:end], {"Link": link} if end < len(rows) else {})


def _rows(files: Mapping[str, bytes], folder: str) -> list[dict[str, object]]:
    """Return the rows of a folder and of all below it: folders and files, by path."""
    rows: dict[str, dict[str, object]] = {}
    inside = folder + "/" if folder else ""
    for path in sorted(files):
        if not path.startswith(inside):
            continue
        for end in (m.start() for m in re.finditer("/", path) if m.start() >= len(inside)):
            oid = hashlib.sha1(path[:end].encode()).hexdigest()
            rows[path[:end]] = {"type": "directory", "oid": oid, "size": 0, "path": path[:end]}
        rows[path] = _row(path, files[path])
    return [rows[path] for path in sorted(rows)]


def _row(path: str, data: bytes) -> dict[str, object]:
    row: dict[str, object] = {"type": "file", "size": len(data), "path": path}
    if not path.endswith(_LARGE):
        return row | {"oid": git_oid(data)}
    sha256 = hashlib.sha256(data).hexdigest()
    pointer = (
        f"version https://git-lfs.github.com/spec/v1\noid sha256:{sha256}\nsize {len(data)}\n"
    ).encode()
    lfs = {"oid": sha256, "size": len(data), "pointerSize": len(pointer)}
    return row | {"oid": git_oid(pointer), "lfs": lfs, "xetHash": sha256[::-1]}


def _resolve(hub: Hub, commit: str, path: str) -> Reply:
    if path not in hub.commits[commit]:
        return _refusal(404, "EntryNotFound", "Entry not found")
    data = hub.commits[commit][path]
    if not path.endswith(_LARGE):
        return Reply(200, data, {"ETag": f'"{git_oid(data)}"', "X-Repo-Commit": commit})
    sha256 = hashlib.sha256(data).hexdigest()
    return Reply(
        302,
        headers={
            "Location": f"{hub.cdn}/objects/{sha256}?name={quote(path, safe='')}&{_SIGNATURE}",
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(len(data)),
            "X-Linked-ETag": f'"{sha256}"',
        },
    )


def _object(hub: Hub, target: str, token: str | None) -> Reply:
    """Answer as the storage behind the hub: objects by their sha256."""
    parts = urlsplit(target)
    if token is not None:
        return Reply(400, b"Only one auth mechanism allowed")
    if not parts.query.endswith(_SIGNATURE):
        return Reply(403, b"Missing Key-Pair-Id query parameter")
    for files in hub.commits.values():
        for data in files.values():
            if parts.path == f"/objects/{(sha256 := hashlib.sha256(data).hexdigest())}":
                return Reply(200, data, {"ETag": f'"{sha256}"'})
    return Reply(404, b"no such object")


def _json(value: object, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(200, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})  # fmt: skip


def _refusal(status: int, code: str, message: str) -> Reply:
    headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})
    return Reply(status, json.dumps({"error": message}).encode(), headers)


@contextlib.contextmanager
def _listening(hub: Hub, name: str, answer: _Answer) -> Generator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub, name, answer))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _handler(hub: Hub, name: str, answer: _Answer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            self._send(
                _part(self._reply(), self.headers.get("Range"), self.headers.get("If-Range"))
            )

        def do_HEAD(self) -> None:
            self._send(self._reply(), with_body=False)

        def _reply(self) -> Reply:
            token = self.headers.get("Authorization")
            token = token.removeprefix("Bearer ") if token is not None else None
            hub.requests.append(Request(name, self.path, token, self.headers.get("Range")))
            return answer(hub, self.path, token)

        def _send(self, reply: Reply, *, with_body: bool = True) -> None:
            self.send_response(reply.status)
            for header, value in reply.headers.items():
                self.send_header(header, value)
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            if with_body:
                with contextlib.suppress(ConnectionError):  # who asked may have gone
                    self.wfile.write(reply.body)

    return Handler


def _part(reply: Reply, wanted: str | None, unless_changed: str | None) -> Reply:
    """Return the part of a whole answer that a range asks for."""
    match = re.fullmatch(r"bytes=(\d+)-(\d*)", wanted or "")
    changed = unless_changed is not None and unless_changed != reply.headers.get("ETag")
    if reply.status != 200 or match is None or changed:
        return reply
    size, start = len(reply.body), int(match[1])
    end = min(int(match[2]) + 1 if match[2] else size, size)
    if start >= size:
        return Reply(416, b"", {**reply.headers, "Content-Range": f"bytes */{size}"})
    told = {**reply.headers, "Content-Range": f"bytes {start}-{end - 1}/{size}"}
    return Reply(206, reply.body[start:end], told)
