"""Uploads to a real S3 server, some through a proxy that breaks them."""

import functools
import hashlib
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any  # a client of boto3 has no type

import pytest

from corpus_platform.config import DownloadSettings, S3Settings
from corpus_platform.errors import SettingsError, SourceRefused, StorageError
from corpus_platform.storage import s3
from corpus_platform.storage.transfer import Patience
from corpus_platform.storage.uploads import Uploaded, block_for, put_bytes, upload_file
from corpus_platform_tests.s3_server import ACCESS_KEY, BUCKET, SECRET_KEY, S3Server
from corpus_platform_tests.storage.upload_proxy import Drop, Passing, UploadProxy

pytestmark = [
    pytest.mark.xdist_group("s3"),  # one server for all
    pytest.mark.usefixtures("s3_keys"),
]

MIB = 1 << 20
BLOCK = 5 * MIB
SETTINGS = DownloadSettings(connections=2, tries=4)
DATA = random.Random(7).randbytes(11 * MIB)  # three parts
SHA256 = hashlib.sha256(DATA).hexdigest()
PARTS = [hashlib.md5(DATA[i * BLOCK : (i + 1) * BLOCK]).digest() for i in range(3)]
ETAG = f'"{hashlib.md5(b"".join(PARTS)).hexdigest()}-3"'


@functools.cache
def connect(url: str) -> Any:
    return s3.connect(S3Settings(endpoint_url=url), SETTINGS)


@pytest.fixture(scope="module")
def passing(weed: S3Server) -> Iterator[UploadProxy]:
    with UploadProxy(weed.port) as proxy:
        yield proxy


@pytest.fixture
def proxy(passing: UploadProxy) -> UploadProxy:
    passing.requests.clear()
    passing.before, passing.after = lambda passing: None, lambda passing: None
    passing.change = lambda passing, body: body
    return passing


class Source:
    """A file to upload to a key of its own; waits between tries are written down."""

    def __init__(self, weed: S3Server, folder: Path) -> None:
        self.weed, self.path = weed, folder / "file"
        self.key = folder.name
        self.url = f"s3://{BUCKET}/{self.key}"
        self.waits: list[float] = []
        self.sent: list[int] = []
        self.path.write_bytes(DATA)

    def upload(self, url: str | None = None, **options: Any) -> Uploaded:
        usual: dict[str, Any] = {"sent": self.sent.append, "block_bytes": BLOCK}
        patience = Patience(SETTINGS, self.url, sleep=self.waits.append)
        client = connect(url or self.weed.url)
        return upload_file(
            client,
            self.path,
            self.url,
            settings=SETTINGS,
            patience=patience,
            **{**usual, **options},
        )

    def holds(self, data: bytes) -> bool:
        """Tell whether the object is just these bytes."""
        return self.weed.client.get_object(Bucket=BUCKET, Key=self.key)["Body"].read() == data

    @property
    def begun(self) -> list[str]:
        """The uploads that the server still keeps parts of."""
        listed = self.weed.client.list_multipart_uploads(Bucket=BUCKET, Prefix=self.key)
        return [upload["UploadId"] for upload in listed.get("Uploads", [])]


@pytest.fixture
def source(weed: S3Server, tmp_path: Path) -> Source:
    return Source(weed, tmp_path)


# What arrives


def test_a_file_of_three_blocks_arrives_whole(source: Source) -> None:
    uploaded = source.upload()
    # begun, listed, three parts, completed, and looked at before and after
    assert uploaded == Uploaded(len(DATA), SHA256, ETAG, len(DATA), 8)
    assert source.holds(DATA)
    assert source.begun == []
    assert sorted(source.sent) == [MIB, 5 * MIB, 5 * MIB]
    head = source.weed.client.head_object(Bucket=BUCKET, Key=source.key)
    assert head["Metadata"] == {"sha256": SHA256}


@pytest.mark.parametrize("data", [b"", b"small", DATA[:BLOCK]], ids=["empty", "small", "block"])
def test_a_file_of_one_block_is_one_request(
    source: Source, proxy: UploadProxy, data: bytes
) -> None:
    source.path.write_bytes(data)
    uploaded = source.upload(proxy.url)
    assert proxy.requests == ["HEAD", "PUT", "HEAD"]
    assert (uploaded.bytes, uploaded.etag) == (len(data), f'"{hashlib.md5(data).hexdigest()}"')
    assert source.holds(data)


@pytest.mark.parametrize("data", [b"small", DATA], ids=["one block", "three blocks"])
def test_what_is_there_is_not_sent_again(source: Source, proxy: UploadProxy, data: bytes) -> None:
    source.path.write_bytes(data)
    first = source.upload()
    again = source.upload(proxy.url, sha256=hashlib.sha256(data).hexdigest())
    assert proxy.requests == ["HEAD"]
    assert (again.transferred, again.etag, again.bytes) == (0, first.etag, len(data))
    assert sum(source.sent) == 2 * len(data)


@pytest.mark.parametrize("there", [b"x", DATA[:-1] + b"x"], ids=["shorter", "as long"])
def test_another_object_of_that_name_is_replaced(source: Source, there: bytes) -> None:
    source.path.write_bytes(there)
    source.upload()
    source.path.write_bytes(DATA)
    assert source.upload().transferred == len(DATA)
    assert source.holds(DATA)


def test_an_object_without_our_hash_is_replaced(source: Source) -> None:
    source.weed.client.put_object(Bucket=BUCKET, Key=source.key, Body=DATA)
    assert source.upload().transferred == len(DATA)


def test_keys_are_any_text(source: Source) -> None:
    source.key = f"{source.key}/a b+c%2F/日本?#"
    source.url = f"s3://{BUCKET}/{source.key}"
    source.upload()
    assert source.holds(DATA)


def test_memory_does_not_grow_with_blocks(source: Source) -> None:
    source.path.write_bytes(DATA * 2)
    source.upload(block_bytes=8 * MIB)  # what is loaded once is not counted
    source.path.write_bytes(DATA + DATA[::-1])
    tracemalloc.start()
    try:
        source.upload(block_bytes=8 * MIB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * MIB  # a MiB for each of two connections, and requests


# Blocks


def test_blocks_are_as_asked_until_there_are_too_many() -> None:
    assert block_for(0) == 16 * MIB
    assert block_for(50_000 * MIB, 5 * MIB) == 5 * MIB
    assert block_for(50_000 * MIB + 1, 5 * MIB) == 6 * MIB
    assert block_for(10_000 << 30, 5 * MIB) == 1 << 30
    assert block_for(50_000 << 30, 5 * MIB) == 5 << 30


@pytest.mark.parametrize("block", [0, 5 * MIB - 1, (5 << 30) + 1])
def test_blocks_that_s3_does_not_take_are_refused(source: Source, block: int) -> None:
    with pytest.raises(SettingsError, match=f"upload_block_size is {block}; S3 takes 5242880 to"):
        source.upload(block_bytes=block)


def test_a_file_of_more_than_all_parts_is_refused() -> None:
    with pytest.raises(StorageError, match="are more than S3 holds in 10000 parts of 5368709120"):
        block_for((50_000 << 30) + 1)


# Faults that pass


def first(what: str, answer: tuple[int, str] | None) -> Any:
    """Refuse the first request for something, or end its connection."""

    def before(passing: Passing) -> tuple[int, str] | None:
        if passing == Passing(what, 1):
            if answer is None:
                raise Drop
            return answer
        return None

    return before


REQUESTS = ["HEAD", "GET uploads", "POST begin", "PUT part 2", "POST complete"]


@pytest.mark.parametrize("what", REQUESTS)
@pytest.mark.parametrize("answer", [None, (503, "SlowDown")])
def test_a_request_that_fails_once_is_made_again(
    source: Source, proxy: UploadProxy, what: str, answer: tuple[int, str] | None
) -> None:
    proxy.before = first(what, answer)
    source.upload(proxy.url)
    # boto3 asks again by itself where a kept connection was closed before its question.
    assert proxy.requests.count(what) >= (3 if what == "HEAD" else 2)
    assert source.holds(DATA)
    assert (len(source.waits), source.begun) == (1, [])


@pytest.mark.parametrize("what", ["PUT part 2", "POST complete"])
def test_an_answer_that_is_lost_does_no_harm(source: Source, proxy: UploadProxy, what: str) -> None:
    def lose(passing: Passing) -> None:
        if passing == Passing(what, 1):
            raise Drop

    proxy.after = lose
    assert source.upload(proxy.url).etag == ETAG
    assert (source.holds(DATA), source.begun) == (True, [])


def test_a_completion_that_is_told_to_be_none_is_looked_at(
    source: Source, proxy: UploadProxy
) -> None:
    def lose(passing: Passing) -> None:
        if passing == Passing("POST complete", 1):
            raise Drop

    def forget(passing: Passing) -> tuple[int, str] | None:
        return (404, "NoSuchUpload") if passing == Passing("POST complete", 2) else None

    proxy.after, proxy.before = lose, forget
    assert source.upload(proxy.url).etag == ETAG
    assert "DELETE abort" not in proxy.requests


@pytest.mark.parametrize("data", [b"small", DATA], ids=["one block", "three blocks"])
def test_bytes_that_change_on_their_way_are_sent_again(
    source: Source, proxy: UploadProxy, data: bytes
) -> None:
    source.path.write_bytes(data)
    what = "PUT" if data == b"small" else "PUT part 3"

    def damage(passing: Passing, body: bytes) -> bytes:
        return b"X" + body[1:] if passing == Passing(what, 1) else body

    proxy.change = damage
    source.upload(proxy.url)
    assert proxy.requests.count(what) == 2
    assert source.holds(data)


def test_a_server_that_cannot_list_uploads_gets_them_all_the_same(
    source: Source, proxy: UploadProxy
) -> None:
    proxy.before = first("GET uploads", (501, "NotImplemented"))
    source.upload(proxy.url)
    assert (source.holds(DATA), source.waits) == (True, [])


# Faults that stay


def always(what: str, answer: tuple[int, str] | None) -> Any:
    """Refuse all requests for something, or end their connections."""

    def before(passing: Passing) -> tuple[int, str] | None:
        return first(what, answer)(Passing(passing.what, 1))

    return before


@pytest.mark.parametrize("what", ["PUT part 3", "POST complete"])
@pytest.mark.parametrize("answer", [None, (500, "InternalError")])
def test_of_an_upload_that_fails_no_part_is_left(
    source: Source, proxy: UploadProxy, what: str, answer: tuple[int, str] | None
) -> None:
    proxy.before = always(what, answer)
    with pytest.raises(StorageError, match=f"{source.url}: .*; given up after 4 tries"):
        source.upload(proxy.url)
    assert proxy.requests[-1] == "DELETE abort"
    assert source.begun == []
    assert len(source.waits) >= 3  # more where another part arrived between


def test_a_refusal_ends_it_at_once(
    source: Source, proxy: UploadProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.before = always("PUT part 1", (403, "AccessDenied"))
    with caplog.at_level(logging.DEBUG), pytest.raises(SourceRefused) as refusal:
        source.upload(proxy.url)
    told = f"{source.url}: AccessDenied (HTTP 403); the keys may not do that: "
    assert str(refusal.value).startswith(told)
    assert (source.waits, source.begun) == ([], [])
    ours = [r.getMessage() for r in caplog.records if r.name.startswith("corpus_platform")]
    for text in (str(refusal.value), *ours):
        assert SECRET_KEY not in text
        assert ACCESS_KEY not in text


def test_ctrl_c_ends_it_and_leaves_no_part(source: Source, proxy: UploadProxy) -> None:
    def interrupt(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        source.upload(proxy.url, sent=interrupt)
    assert (source.begun, proxy.requests[-1]) == ([], "DELETE abort")


def test_parts_that_cannot_be_removed_are_told_and_gone_on_with(
    source: Source, proxy: UploadProxy, caplog: pytest.LogCaptureFixture
) -> None:
    def away(passing: Passing) -> tuple[int, str] | None:
        if passing.what in ("PUT part 3", "DELETE abort"):
            raise Drop
        return None

    proxy.before = away
    with pytest.raises(StorageError, match="given up"):
        source.upload(proxy.url)
    assert "what was uploaded of it may be left on the server" in caplog.text
    assert len(source.begun) == 1
    proxy.before = lambda passing: None
    proxy.requests.clear()
    assert source.upload(proxy.url).transferred == MIB
    assert [r for r in proxy.requests if r.startswith("PUT")] == ["PUT part 3"]
    assert (source.holds(DATA), source.begun) == (True, [])


@pytest.mark.parametrize("change", ["grows", "shrinks"])
def test_a_file_that_changes_meanwhile_is_no_object(
    source: Source, proxy: UploadProxy, change: str
) -> None:
    def touch(passing: Passing) -> tuple[int, str] | None:
        if passing == Passing("POST begin", 1):
            os.truncate(source.path, len(DATA) + (1 if change == "grows" else -1))
        return None

    proxy.before = touch
    with pytest.raises(StorageError, match="file: was changed while it was uploaded"):
        source.upload(proxy.url)
    assert source.begun == []
    with pytest.raises(source.weed.client.exceptions.NoSuchKey):
        source.holds(DATA)


def test_a_file_that_is_not_there_is_named(source: Source) -> None:
    source.path.unlink()
    with pytest.raises(StorageError, match=f"{source.path}: cannot be read: "):
        source.upload()


def test_a_bucket_is_no_object(source: Source) -> None:
    source.url = f"s3://{BUCKET}"
    with pytest.raises(SettingsError, match="it names a bucket, the URL of an object is wanted"):
        source.upload()


# Killed processes

KILLED = """
import sys
from pathlib import Path
from corpus_platform.config import DownloadSettings, S3Settings
from corpus_platform.storage import s3
from corpus_platform.storage.uploads import upload_file
url, path, target = sys.argv[1:]
settings = DownloadSettings(connections=1)
client = s3.connect(S3Settings(endpoint_url=url), settings)
upload_file(client, Path(path), target, settings=settings, block_bytes=5 << 20)
"""


def kill_at(source: Source, proxy: UploadProxy, what: str) -> None:
    """Upload in another process, which is killed when it asks for something."""
    reached, dead = threading.Event(), threading.Event()

    def before(passing: Passing) -> None:
        if passing.what == what:
            reached.set()
            dead.wait(60)
            raise Drop

    proxy.before = before
    command = [sys.executable, "-c", KILLED, proxy.url, str(source.path), source.url]
    with subprocess.Popen(command) as process:
        assert reached.wait(60)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        dead.set()
    proxy.before = lambda passing: None
    proxy.requests.clear()


def test_what_a_killed_process_uploaded_is_gone_on_with(source: Source, proxy: UploadProxy) -> None:
    kill_at(source, proxy, "PUT part 3")
    assert len(source.begun) == 1
    uploaded = source.upload(proxy.url)
    assert [r for r in proxy.requests if r.startswith("PUT")] == ["PUT part 3"]
    assert (uploaded.transferred, uploaded.etag, sum(source.sent)) == (MIB, ETAG, len(DATA))
    assert (source.holds(DATA), source.begun) == (True, [])


def begin(source: Source, data: bytes, *, sha256: str = "of another file") -> None:
    about = {"Bucket": BUCKET, "Key": source.key}
    upload = source.weed.client.create_multipart_upload(**about, Metadata={"sha256": sha256})
    source.weed.client.upload_part(**about, UploadId=upload["UploadId"], PartNumber=1, Body=data)


@pytest.mark.parametrize(
    "there", [DATA[1 : BLOCK + 1], DATA[: BLOCK + 1]], ids=["other bytes", "other blocks"]
)
def test_parts_of_another_file_are_not_gone_on_with(source: Source, there: bytes) -> None:
    begin(source, there, sha256=SHA256)
    assert source.upload().transferred == len(DATA)
    assert source.holds(DATA)


def test_an_upload_of_a_file_that_begins_alike_does_not_name_the_object(source: Source) -> None:
    begin(source, DATA[:BLOCK])
    uploaded = source.upload()
    head = source.weed.client.head_object(Bucket=BUCKET, Key=source.key)
    assert head["Metadata"] == {"sha256": SHA256}
    assert (uploaded.etag, sum(source.sent)) == (ETAG, len(DATA))


# Manifests


def put(source: Source, data: bytes, url: str | None = None, **options: Any) -> Uploaded:
    client = connect(url or source.weed.url)
    patience = Patience(SETTINGS, source.url, sleep=source.waits.append)
    return put_bytes(client, source.url, data, settings=SETTINGS, patience=patience, **options)


def test_a_manifest_is_one_request_and_replaces_an_older_one(source: Source) -> None:
    put(source, b"{}")
    uploaded = put(source, b"{1}")
    assert source.holds(b"{1}")
    assert (uploaded.bytes, uploaded.sha256) == (3, hashlib.sha256(b"{1}").hexdigest())


def test_a_new_manifest_replaces_none(source: Source) -> None:
    put(source, b"{}", only_new=True)
    with pytest.raises(SourceRefused, match=r"PreconditionFailed .* there is an object of that"):
        put(source, b"{1}", only_new=True)
    assert source.holds(b"{}")
    assert put(source, b"{}", only_new=True).transferred == 0


def test_a_new_manifest_whose_answer_is_lost_is_there(source: Source, proxy: UploadProxy) -> None:
    def lose(passing: Passing) -> None:
        if passing == Passing("PUT", 1):
            raise Drop

    proxy.after = lose
    put(source, b"{}", proxy.url, only_new=True)
    assert (source.holds(b"{}"), proxy.requests.count("PUT")) == (True, 2)
