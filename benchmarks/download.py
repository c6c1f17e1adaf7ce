"""How fast a file comes over loopback, beside curl and urllib: MB/s, CPU seconds, largest memory.

    python benchmarks/download.py [MEGABYTES] [FOLDER]

The server is a process of its own, so its CPU time is not counted. `get_file` hashes, flushes and
counts what it writes; curl and urllib do none of that, so each is also timed with the hash and the
flush that make its result comparable. The best of three runs counts: the machine has other work.
"""

import hashlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

from corpus_platform.config import DownloadSettings
from corpus_platform.storage.files import file_sha256, flush_file
from corpus_platform.storage.http import get_file

SERVER = """
import os, socket, sys
listening = socket.create_server(("127.0.0.1", 0))
print(listening.getsockname()[1], flush=True)
size = os.path.getsize(sys.argv[1])
while True:
    connection, _ = listening.accept()
    with connection, open(sys.argv[1], "rb") as file:
        connection.recv(65536)
        head = f'HTTP/1.1 200 OK\\r\\nContent-Length: {size}\\r\\nETag: "v1"\\r\\nConnection: close\\r\\n\\r\\n'
        connection.sendall(head.encode())
        connection.sendfile(file)
"""


def main() -> None:
    """Print one line for each way."""
    size = int(sys.argv[1] if len(sys.argv) > 1 else 500) * 1_000_000
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as name:
        source, target = Path(name) / "source", Path(name) / "target"
        with source.open("wb") as file:
            block = os.urandom(1_000_000)
            for _ in range(size // len(block)):
                file.write(block)
        server = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(source)], stdout=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        url = f"http://127.0.0.1:{int(server.stdout.readline())}/file"
        try:
            for what, fetch in WAYS.items():
                _print_best(what, lambda fetch=fetch: fetch(url, target), target, size)
        finally:
            server.kill()
            server.wait()
    print(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB at most")


def _get_file(url: str, target: Path) -> None:
    get_file(url, target, settings=DownloadSettings(), read=lambda count: None)


def _curl(url: str, target: Path) -> None:
    if shutil.which("curl"):
        subprocess.run(["curl", "-s", "-o", target, url], check=True)


def _curl_and_hash(url: str, target: Path) -> None:
    _curl(url, target)
    file_sha256(target)
    flush_file(target)


def _urllib(url: str, target: Path) -> None:
    with urllib.request.urlopen(url) as answer, target.open("wb") as file:
        shutil.copyfileobj(answer, file, 1 << 20)


def _urllib_and_hash(url: str, target: Path) -> None:
    digest = hashlib.sha256()
    with urllib.request.urlopen(url) as answer, target.open("wb") as file:
        while block := answer.read(1 << 20):
            digest.update(block)
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


WAYS: dict[str, Callable[[str, Path], None]] = {
    "get_file": _get_file,
    "curl": _curl,
    "curl, sha256, flush": _curl_and_hash,
    "urllib": _urllib,
    "urllib with sha256, flush": _urllib_and_hash,
}


def _print_best(what: str, fetch: Callable[[], None], target: Path, size: int) -> None:
    best = (float("inf"), 0.0)
    for _ in range(3):
        target.unlink(missing_ok=True)
        os.sync()
        wall, cpu = time.perf_counter(), _cpu()
        fetch()
        best = min(best, (time.perf_counter() - wall, _cpu() - cpu))
    print(
        f"{size / 1e6 / best[0]:8.0f} MB/s {best[0]:7.2f} s wall {best[1]:7.2f} s cpu  {what}",
        flush=True,
    )


def _cpu() -> float:
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    uses = [resource.getrusage(kind) for kind in kinds]
    return sum(use.ru_utime + use.ru_stime for use in uses)


if __name__ == "__main__":
    main()
