"""Listing and fetching from a real S3 server; keys that it does not allow, from a stand-in."""

import functools
import hashlib
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any  # a client of boto3 has no type

import pytest

from corpus_platform.config import DownloadSettings, S3Settings
from corpus_platform.errors import SourceRefused, StorageError
from corpus_platform.storage import s3
from corpus_platform.storage.transfer import Fetched, Patience, Read
from corpus_platform_tests.s3_server import (
    BUCKET,
    SECRET_KEY,
    CountingProxy,
    S3Server,
)
from corpus_platform_tests.s3_stub import Reply, S3Stub, refusal

pytestmark = [
    pytest.mark.xdist_group("s3"),  # one server for all
    pytest.mark.usefixtures("s3_keys"),
]

MIB = 1 << 20
SETTINGS = DownloadSettings(part_bytes=MIB // 2, connections=4)


def new_client(url: str) -> Any:
    return s3.connect(S3Settings(endpoint_url=url), SETTINGS)


connect = functools.cache(new_client)  # making one takes a quarter of a second


def no_matter(count: int) -> None:
    """Hear of bytes."""


def fetch(
    url: str, target: Path, *, key: str, client: Any = None, read: Read = no_matter, **options
) -> Fetched:
    return s3.get_file(
        client or connect(url),
        f"s3://{BUCKET}/{key}",
        target,
        settings=SETTINGS,
        read=read,
        **options,
    )


def put(weed: S3Server, key: str, data: bytes) -> str:
    return weed.client.put_object(Bucket=BUCKET, Key=key, Body=data)["ETag"]


def put_in_parts(weed: S3Server, key: str, data: bytes, part_bytes: int) -> str:
    """Upload an object in parts of this size; return its ETag."""
    about = {"Bucket": BUCKET, "Key": key}
    upload = weed.client.create_multipart_upload(**about)["UploadId"]
    parts = []
    for number, start in enumerate(range(0, len(data), part_bytes), start=1):
        piece = data[start : start + part_bytes]
        told = weed.client.upload_part(**about, UploadId=upload, PartNumber=number, Body=piece)
        parts.append({"PartNumber": number, "ETag": told["ETag"]})
    whole = {"Parts": parts}
    weed.client.complete_multipart_upload(**about, UploadId=upload, MultipartUpload=whole)
    return weed.client.head_object(**about)["ETag"]


# Listing


MANY = [f"many/shard-{i:04d}.jsonl.zst" for i in range(1001)]


def test_a_listing_of_1001_objects_in_pages_of_1000_is_whole() -> None:
    with S3Stub() as stub:
        stub.objects = dict.fromkeys(MANY, b"x")
        url = f"s3://{BUCKET}/many/shard-"
        found = list(s3.list_objects(connect(stub.url), url, settings=SETTINGS))
        assert len(stub.requests) == 2
    assert [o.key for o in found] == MANY


@pytest.mark.slow
def test_a_real_listing_of_1001_objects_is_whole(weed: S3Server) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: put(weed, key, b"x"), MANY))
    url = f"s3://{BUCKET}/many/shard-"
    found = list(s3.list_objects(connect(weed.url), url, settings=SETTINGS))
    assert [o.key for o in found] == MANY
    assert {(o.bytes, o.etag) for o in found} == {(1, '"9dd4e461268c8034f5c8564e155c67a6"')}


def test_a_listed_version_and_length_are_those_that_come(weed: S3Server, tmp_path: Path) -> None:
    put(weed, "listed/a", b"ten bytes.")
    client = connect(weed.url)
    (one,) = s3.list_objects(client, f"s3://{BUCKET}/listed/", settings=SETTINGS)
    fetched = fetch(
        weed.url, tmp_path / "x", key=one.key, version=one.etag, expect=one.bytes, client=client
    )
    assert (fetched.version, fetched.bytes) == (one.etag, 10)


def test_keys_come_as_they_are_and_folders_are_left_out(weed: S3Server) -> None:
    keys = ["k/a b", "k/a%2Fb", "k/a&b<c>", "k/a+b", "k/q?r#s", "k/x\ny", "k/ünï/日本"]
    for key in [*keys, "k/folder/"]:
        put(weed, key, b"" if key.endswith("/") else b"x")
    found = s3.list_objects(connect(weed.url), f"s3://{BUCKET}/k/", settings=SETTINGS)
    assert [o.key for o in found] == keys


def test_objects_of_odd_keys_are_those_that_come(weed: S3Server, tmp_path: Path) -> None:
    client = connect(weed.url)
    for key in ["o/a b+c%2F", "o/q?r#s", "o/x\ny", "o/日本"]:
        put(weed, key, key.encode())
        fetch(weed.url, tmp_path / "x", key=key, client=client)
        assert (tmp_path / "x").read_text(encoding="utf-8") == key


def test_keys_that_look_like_paths_come_as_they_are() -> None:
    keys = ["../../etc/passwd", "/lead", "a//b", "a/./b", "a/../b", "\t\r\n\x01"]
    with S3Stub() as stub:
        stub.objects = dict.fromkeys(keys, b"x") | {"a/folder/": b"", "not/empty/": b"x"}
        found = s3.list_objects(connect(stub.url), f"s3://{BUCKET}/", settings=SETTINGS)
        assert sorted(o.key for o in found) == sorted([*keys, "not/empty/"])


def test_a_listing_that_is_throttled_goes_on() -> None:
    waits: list[float] = []
    with S3Stub() as stub:
        stub.objects = {f"{i:04d}": b"x" for i in range(2500)}
        busy = {2, 3, 5}
        stub.before = lambda n, request: refusal(503, "SlowDown") if n in busy else None
        url, patience = f"s3://{BUCKET}", Patience(SETTINGS, "s3", sleep=waits.append)
        client = connect(stub.url)
        found = list(s3.list_objects(client, url, settings=SETTINGS, patience=patience))
    assert [o.key for o in found] == [f"{i:04d}" for i in range(2500)]
    assert (patience.attempts, len(waits)) == (6, 3)


@pytest.mark.parametrize("token", ["", "<NextContinuationToken>7</NextContinuationToken>"])
def test_a_listing_that_does_not_say_where_it_goes_on_is_an_error(token: str) -> None:
    body = f"<ListBucketResult>{token}<IsTruncated>true</IsTruncated></ListBucketResult>"
    with S3Stub() as stub:
        stub.before = lambda n, request: Reply(200, {}, body.encode())
        with pytest.raises(StorageError, match="would be incomplete"):
            list(s3.list_objects(connect(stub.url), f"s3://{BUCKET}/", settings=SETTINGS))


def test_a_page_of_a_web_server_is_not_taken_for_an_empty_listing() -> None:
    with S3Stub() as stub:
        stub.before = lambda n, request: Reply(200, {}, b"<html><body>Welcome</body></html>")
        with pytest.raises(SourceRefused, match=r"is s3\.endpoint_url an S3 server"):
            list(s3.list_objects(connect(stub.url), f"s3://{BUCKET}/", settings=SETTINGS))


# Fetching


def test_an_object_uploaded_in_parts_is_known_by_its_sha256(weed: S3Server, tmp_path: Path) -> None:
    data = bytes(5 * MIB) + b"\x01"
    etag = put_in_parts(weed, "multipart", data, 5 * MIB)
    assert etag == '"b96b8e43eae1096721fcd7be1cc9e104-2"'  # md5 of the md5s of its parts
    fetched = fetch(weed.url, tmp_path / "x", key="multipart", version=etag)
    assert fetched.sha256 == "26092d6b3e4bf912fc21c72b1dc56e487e13223b88f2bba5df215936d2475484"
    assert (fetched.bytes, fetched.version) == (5 * MIB + 1, etag)


def test_a_wrong_secret_is_refused_with_what_to_set(
    weed: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(weed, "signed", b"x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret-either")
    with pytest.raises(SourceRefused) as refused:
        fetch(weed.url, tmp_path / "x", key="signed", client=new_client(weed.url))
    words = str(refused.value)
    assert words.startswith("s3://crawls/signed: SignatureDoesNotMatch (HTTP 403); ")
    assert "AWS_SECRET_ACCESS_KEY" in words
    assert "not-the-secret-either" not in words
    assert SECRET_KEY not in words
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_is_refused(weed: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    with pytest.raises(SourceRefused, match=r"InvalidAccessKeyId \(HTTP 403\).*AWS_ACCESS_KEY_ID"):
        list(s3.list_objects(new_client(weed.url), f"s3://{BUCKET}/", settings=SETTINGS))


def test_what_is_not_there_is_refused_by_name(weed: S3Server, tmp_path: Path) -> None:
    client = connect(weed.url)
    with pytest.raises(SourceRefused, match=r"^s3://crawls/no/such: NoSuchKey \(HTTP 404\)"):
        fetch(weed.url, tmp_path / "x", key="no/such", client=client)
    with pytest.raises(SourceRefused, match=r"^s3://elsewhere/x: NoSuchBucket \(HTTP 404\)"):
        s3.get_bytes(client, "s3://elsewhere/x", settings=SETTINGS, max_bytes=9)


@pytest.mark.parametrize("size", [0, 1, MIB // 2, MIB, MIB + 1])
def test_objects_of_any_size_come_whole(weed: S3Server, tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    etag = put(weed, f"size/{size}", data)
    fetched = fetch(weed.url, tmp_path / "x", key=f"size/{size}")
    requests = max(2 if not size else -(-size // (MIB // 2)), 1)
    sha256 = hashlib.sha256(data).hexdigest()
    assert fetched == Fetched(size, sha256, True, etag, size, requests)
    assert (tmp_path / "x").read_bytes() == data


@pytest.mark.parametrize("share", [0.41, 0.78, 0.99])
def test_a_connection_cut_on_the_way_is_gone_on_with(
    weed: S3Server, tmp_path: Path, share: float
) -> None:
    data = random.Random(41).randbytes(8 * MIB)
    put(weed, "cut", data)
    with CountingProxy(weed.port) as proxy:
        proxy.cuts = [int(share * len(data))]
        fetched = fetch(proxy.url, tmp_path / "x", key="cut")
        assert proxy.cuts == []
        sent = proxy.sent
    assert fetched.sha256 == hashlib.sha256(data).hexdigest()
    assert fetched.attempts == 16 + 1
    assert fetched.transferred == len(data)
    assert sent <= 1.2 * len(data)


def test_an_object_replaced_meanwhile_is_never_mixed(weed: S3Server, tmp_path: Path) -> None:
    old, new = (random.Random(seed).randbytes(8 * MIB) for seed in (1, 2))
    put(weed, "replaced", old)
    told: list[int] = []

    def read(count: int) -> None:
        told.append(count)
        if len(told) == 3:
            put(weed, "replaced", new)

    fetched = fetch(weed.url, tmp_path / "x", key="replaced", read=read)
    assert fetched.sha256 == hashlib.sha256(new).hexdigest()
    assert (sum(told), min(told) < 0) == (8 * MIB, True)


def test_an_object_replaced_meanwhile_is_refused_when_its_version_was_listed(
    weed: S3Server, tmp_path: Path
) -> None:
    etag = put(weed, "pinned", random.Random(1).randbytes(8 * MIB))
    told: list[int] = []
    later: list[str] = []

    def read(count: int) -> None:
        told.append(count)
        if len(told) == 3:
            later.append(put(weed, "pinned", random.Random(2).randbytes(8 * MIB)))

    with pytest.raises(SourceRefused) as refused:
        fetch(weed.url, tmp_path / "x", key="pinned", read=read, version=etag)
    assert etag in str(refused.value)
    assert later[0] in str(refused.value)
    assert not (tmp_path / "x").exists()
