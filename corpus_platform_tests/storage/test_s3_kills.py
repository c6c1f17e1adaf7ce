"""Downloads from a real S3 server whose process is killed: each time what was marked is kept."""

import contextlib
import hashlib
import itertools
import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from corpus_platform.config import DownloadSettings, S3Settings
from corpus_platform.storage import parts, s3
from corpus_platform.storage.parts import has_parts
from corpus_platform.storage.transfer import Fetched
from corpus_platform_tests.s3_server import BUCKET, CountingProxy, S3Server, set_keys

pytestmark = [
    pytest.mark.xdist_group("s3"),  # one server for all
    pytest.mark.usefixtures("s3_keys"),
]

MIB = 1 << 20
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])  # importing boto3 takes longer than a download


class Death(NamedTuple):
    """Where a process kills itself: before or after the n-th call of a function.

    `kept` of 24 blocks are marked by then at least: three other connections may be on their way.
    """

    place: object
    name: str
    call: int
    kept: int
    after: bool = False


DEATHS = {
    "bytes written": Death(parts.PartsFile, "write", 9, kept=5, after=True),
    "bytes written, not marked": Death(parts.PartsFile, "mark", 9, kept=5),
    "marked": Death(parts.PartsFile, "mark", 9, kept=6, after=True),
    "bytes written, flushed, not listed": Death(parts, "_write_beside", 3, kept=2),
    "list written, not renamed": Death(parts.os, "replace", 3, kept=2),
    "listed": Death(parts.os, "replace", 3, kept=2, after=True),
    "all listed, not renamed": Death(parts.PartsFile, "publish", 1, kept=24),
}


USUAL = DownloadSettings()
SMALL_PARTS = DownloadSettings(part_bytes=MIB // 8)


def download(
    url: str, target: Path, settings: DownloadSettings = USUAL, death: str | None = None
) -> Fetched:
    """Fetch `big`; run in a process of its own, to be killed."""
    set_keys(os.environ)
    client = s3.connect(S3Settings(endpoint_url=url), settings)
    with deadly(DEATHS[death]) if death else contextlib.nullcontext():
        return s3.get_file(
            client, f"s3://{BUCKET}/big", target, settings=settings, read=lambda n: None
        )


def deadly(death: Death) -> contextlib.AbstractContextManager:
    function: Callable = getattr(death.place, death.name)
    calls = itertools.count(1)

    def counted(*values, **options):
        call = next(calls)
        if call == death.call and not death.after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*values, **options)
        if call == death.call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return mock.patch.object(death.place, death.name, counted)


def put_big(weed: S3Server, size: int) -> str:
    """Put an object of random bytes; return its sha256."""
    data = random.Random(size).randbytes(size)
    weed.client.put_object(Bucket=BUCKET, Key="big", Body=data)
    return hashlib.sha256(data).hexdigest()


def kill_at(points: list[int], proxy: CountingProxy, target: Path) -> int:
    """Begin a download again and again; kill it whenever so much was sent. Return the kills."""
    kills = 0
    for point in points:
        process = FORKS.Process(target=download, args=(proxy.url, target))
        process.start()
        reached = proxy.wait_for(point, 60.0)
        process.kill()
        process.join()
        assert reached
        kills += process.exitcode == -signal.SIGKILL
        assert not target.exists()
    return kills


def survives(weed: S3Server, target: Path, *, size: int, kills: int) -> float:
    """Kill a download at random points of its bytes and end it; return bytes sent per byte.

    Settings are the usual ones: parts are 32 times as large as what a kill may cost of each.
    """
    sha256 = put_big(weed, size)
    chance = random.Random(kills)
    points = sorted(chance.randrange(1, size * 19 // 20) for _ in range(kills))
    with CountingProxy(weed.port, bytes_per_second=20e6) as proxy:
        assert kill_at(points, proxy, target) == kills
        assert has_parts(target)
        fetched = download(proxy.url, target)
        sent = proxy.sent
    assert fetched.sha256 == sha256
    assert hashlib.sha256(target.read_bytes()).hexdigest() == sha256
    assert [p.name for p in target.parent.iterdir()] == [target.name]
    return sent / size


def test_a_download_killed_four_times_ends_right(weed: S3Server, tmp_path: Path) -> None:
    ratio = survives(weed, tmp_path / "x", size=30_000_000, kills=4)
    assert ratio <= 1.2


@pytest.mark.slow
def test_a_download_of_200_mb_killed_20_times_ends_right(weed: S3Server, tmp_path: Path) -> None:
    ratio = survives(weed, tmp_path / "x", size=200_000_000, kills=20)
    assert ratio <= 1.2


@pytest.mark.parametrize("death", DEATHS)
def test_a_kill_at_any_step_costs_at_most_what_was_not_marked(
    weed: S3Server, tmp_path: Path, death: str
) -> None:
    size, target = 3 * MIB, tmp_path / "x"
    sha256 = put_big(weed, size)
    process = FORKS.Process(target=download, args=(weed.url, target, SMALL_PARTS, death))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert not target.exists()
    kept = left_of(target)
    fetched = download(weed.url, target, SMALL_PARTS)
    assert fetched.sha256 == sha256
    assert fetched.transferred == size - kept
    assert kept >= DEATHS[death].kept * MIB // 8
    assert hashlib.sha256(target.read_bytes()).hexdigest() == sha256
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def left_of(target: Path) -> int:
    """Return the bytes that a killed process left to go on with."""
    file = parts.PartsFile.reopen(target, f"s3://{BUCKET}/big")
    if file is None:
        return 0
    file.close()
    return file.kept
