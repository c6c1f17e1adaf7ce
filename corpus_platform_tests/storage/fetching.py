"""Fetching over HTTP as tests do: objects, what a broken download leaves, what must hold after each."""

import hashlib
import random
from pathlib import Path

import pytest

from corpus_platform.config import DownloadSettings
from corpus_platform.errors import SourceRefused, StorageError
from corpus_platform.storage import partial
from corpus_platform.storage.http import get_file
from corpus_platform.storage.transfer import Fetched, Patience
from corpus_platform_tests.http_server import HttpServer, Served, Twist

__all__ = [
    "BIG",
    "BIG_SHA256",
    "OBJECT",
    "OBJECT_SHA256",
    "OTHER",
    "OTHER_SHA256",
    "SETTINGS",
    "V1",
    "V2",
    "Heard",
    "adopt",
    "failed",
    "fetch",
    "leave",
    "refused",
]

SETTINGS = DownloadSettings(tries=4, first_wait_seconds=0.001, timeout_seconds=5.0)
# Cases dl-01 to dl-06 of the list of known download faults; their hashes are written there.
OBJECT = bytes(i % 251 for i in range(1000))
OBJECT_SHA256 = "4e4c294b331f7a2099a379bec34b9f9fc03dc46ab465d998f4d683da53487e6d"
OTHER = bytes((i * 7 + 3) % 251 for i in range(1000))
OTHER_SHA256 = "a9425c416f534025a4e2422bd14adba4ec3d4a68d10c3329be8df612964d2b6e"
BIG = random.Random(1).randbytes(3_000_000)
BIG_SHA256 = hashlib.sha256(BIG).hexdigest()
V1, V2 = Served(OBJECT), Served(OTHER, '"v2"')


class Heard:
    """What was told of bytes that are there."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def __call__(self, count: int) -> None:
        self.told.append(count)


def fetch(
    server: HttpServer,
    target: Path,
    *,
    path: str = "/o",
    expect: int | None = None,
    settings: DownloadSettings = SETTINGS,
    token: str | None = None,
    patience: Patience | None = None,
) -> Fetched:
    """Fetch, and check that what was heard adds up to what is there."""
    heard = Heard()
    got = get_file(
        server.url + path,
        target,
        settings=settings,
        read=heard,
        expect=expect,
        token=token,
        patience=patience,
    )
    assert sum(heard.told) == got.bytes == target.stat().st_size
    assert hashlib.sha256(target.read_bytes()).hexdigest() == got.sha256
    assert [p.name for p in target.parent.iterdir()] == [target.name]
    return got


def leave(target: Path, held: int, served: Served = V1, *, chunked: bool = False) -> None:
    """Have a download of `/o` broken off after so many bytes, as a killed process leaves it."""
    once = DownloadSettings(tries=1, timeout_seconds=5.0)
    with HttpServer({"/o": served}, Twist(cut=held, chunked=chunked)) as server:
        with pytest.raises(StorageError):
            get_file(server.url + "/o", target, settings=once, read=Heard())
        was = partial.identity(server.url + "/o")
    meta = target.with_name(target.name + ".partial.json")
    meta.write_text(meta.read_text().replace(was, "THE-SOURCE"))


def adopt(target: Path, server: HttpServer) -> None:
    """Have what was left be of a server's `/o` (its port is another one)."""
    meta = target.with_name(target.name + ".partial.json")
    meta.write_text(meta.read_text().replace("THE-SOURCE", partial.identity(server.url + "/o")))


def refused(server: HttpServer, target: Path, **more: object) -> str:
    """Return why a source is refused; nothing has the file's name then."""
    with pytest.raises(SourceRefused) as caught:
        fetch(server, target, **more)  # ty: ignore[invalid-argument-type]
    assert not target.exists()
    return str(caught.value)


def failed(server: HttpServer, target: Path, **more: object) -> str:
    """Return what went wrong that may pass; nothing has the file's name then."""
    with pytest.raises(StorageError) as caught:
        fetch(server, target, **more)  # ty: ignore[invalid-argument-type]
    assert not isinstance(caught.value, SourceRefused)
    assert not target.exists()
    return str(caught.value)
