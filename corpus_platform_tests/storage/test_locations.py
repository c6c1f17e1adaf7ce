"""Tests of what locations name: different objects never the same, one object always the same."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_platform.storage.locations import download_name, file_name, source_of


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://bucket/a/part?1#x", "s3://bucket/a/part?1#x"),
        ("s3://bucket/a\nb\t", "s3://bucket/a\nb\t"),
        ("s3://me:secret@bucket/a@b?c", "s3://bucket/a@b?c"),
        ("s3://bucket", "s3://bucket"),
        ("https://me:secret@host/a%20b#part", "https://host/a%20b"),
        ("https://host/a?X-Amz-Signature=s&X-Amz-Date=d", "https://host/a"),
        ("http://[::1/a?sig=secret", "http://..."),
        ("hf://datasets/o/n@c0/a.parquet", "hf://datasets/o/n@c0/a.parquet"),
        ("/data/what?is#this", "/data/what?is#this"),
    ],
)
def test_a_source_is_all_that_names_an_object_and_no_secret(location: str, expected: str) -> None:
    assert source_of(location) == expected


APART = [
    "s3://crawls/a",
    "s3://crawls/a?1",
    "s3://crawls/a?2",
    "s3://crawls/a#1",
    "s3://crawls/a%3F1",
    "s3://crawls/a\n",
    "s3://crawls/a/",
    "https://host/a",
    "https://host/a%3Ff=1",
    "https://host/a?f=1",
    "https://host/a?f=2",
    "https://host/a?f=caf%e9",
    "https://host/a?f=caf%e8",
    "https://host/a?",  # as without
    "http://host/a?f=1",
    "hf://datasets/o/n@c0/a",
    *(f"s3://crawls/{'y' * n}?{m}" for n in (170, 180, 190, 3000) for m in (1, 2)),
    *(f"https://host/{'y' * n}?f={m}" for n in (130, 170, 190, 3000) for m in (1, 2)),
]


def test_no_two_objects_share_a_name() -> None:
    assert len({source_of(location) for location in APART}) == len(APART) - 1
    assert len({download_name(location) for location in APART}) == len(APART) - 1


@given(st.text(min_size=1), st.text(min_size=1))
def test_no_two_keys_share_a_name(one: str, other: str) -> None:
    names = {download_name(f"s3://crawls/{key}") for key in (one, other)}
    assert len(names) == len({one, other})


def test_one_object_has_one_name_whoever_signed_its_url() -> None:
    signed = [
        "https://host/a?f=1&X-Amz-Signature=5ec2e7&X-Amz-Expires=60",
        "https://host/a?X-Amz-Signature=0ther&f=1",
        "https://me:secret@host/a?f=1&Signature=x&Expires=1#part",
    ]
    (name,) = {download_name(location) for location in signed}
    query = hashlib.sha256(b'["https", "host", "/a", [["f", "1"]]]').hexdigest()[:32]
    assert name == f"https%3A%2F%2Fhost%2Fa%3F{query}"


def test_a_name_can_be_read_and_leaves_room_for_what_is_put_beside_it() -> None:
    assert download_name("s3://crawls/2026/a?1.gz") == "s3%3A%2F%2Fcrawls%2F2026%2Fa%3F1.gz"
    assert max(len(download_name(f"s3://c/{'y' * n}")) for n in range(300)) == 190


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://bucket/2026/a?1.jsonl.gz", "a?1.jsonl.gz"),
        ("s3://bucket/2026/a\n#.gz", "a\n#.gz"),
        ("https://host/2026/a.jsonl.gz?sig=/s.txt#/p", "a.jsonl.gz"),
        ("/data/what?is#this", "what?is#this"),
    ],
)
def test_a_file_is_called_as_where_it_lies(location: str, expected: str) -> None:
    assert file_name(location) == expected
