"""What a server really answered decides; nothing is a mix of two versions of a file."""

import hashlib
from pathlib import Path

import pytest

from corpus_platform.storage.partial import has_checkpoint
from corpus_platform_tests.http_server import NOW, OLD, HttpServer, Served, Twist
from corpus_platform_tests.storage.fetching import (
    OBJECT,
    OBJECT_SHA256,
    OTHER,
    OTHER_SHA256,
    V1,
    V2,
    adopt,
    failed,
    fetch,
    leave,
    refused,
)


def test_dl_01_a_whole_answer_to_a_resume_is_never_appended(tmp_path: Path) -> None:
    leave(tmp_path / "o", 300)
    with HttpServer({"/o": V1}, *[Twist(ignore_range=True)] * 9) as server:
        adopt(tmp_path / "o", server)
        got = fetch(server, tmp_path / "o")
    assert (got.bytes, got.sha256, got.transferred) == (1000, OBJECT_SHA256, 1000)
    assert server.requests[0].headers["range"] == "bytes=300-"


@pytest.mark.parametrize("told", ["bytes */1000", None])
def test_dl_04_a_part_that_is_whole_already_is_published(tmp_path: Path, told: str | None) -> None:
    leave(tmp_path / "o", 1000, chunked=True)  # broken before the end of chunks: whole, not known
    with HttpServer({"/o": V1}, Twist(416, {"Content-Range": told}, body=b"")) as server:
        adopt(tmp_path / "o", server)
        got = fetch(server, tmp_path / "o")
    assert got.sha256 == OBJECT_SHA256
    assert got.transferred == (1000 if told is None else 0)


def test_dl_04_a_part_of_the_known_size_needs_no_request(tmp_path: Path) -> None:
    leave(tmp_path / "o", 999)
    meta = tmp_path / "o.partial.json"
    (tmp_path / "o.partial").write_bytes(OBJECT)
    before = hashlib.sha256(OBJECT[:999]).hexdigest()
    meta.write_text(meta.read_text().replace("999", "1000").replace(before, OBJECT_SHA256))
    with HttpServer({"/o": Twist(500)}) as server:
        adopt(tmp_path / "o", server)
        got = fetch(server, tmp_path / "o", expect=1000)
    assert (got.sha256, got.transferred, got.attempts) == (OBJECT_SHA256, 0, 0)


@pytest.mark.parametrize("told", ["bytes */1000", None])
def test_dl_04_a_part_longer_than_the_file_is_fetched_anew(
    tmp_path: Path, told: str | None
) -> None:
    leave(tmp_path / "o", 1005, Served(OBJECT + b"extra"), chunked=True)
    with HttpServer({"/o": V1}, Twist(416, {"Content-Range": told}, body=b"")) as server:
        adopt(tmp_path / "o", server)
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.bytes, got.transferred) == (OBJECT_SHA256, 1000, 1000)


def test_a_part_as_long_as_another_version_is_fetched_anew(tmp_path: Path) -> None:
    leave(tmp_path / "o", 1000, chunked=True)
    changed = Twist(416, {"Content-Range": "bytes */1000", "ETag": '"v2"'}, body=b"")
    with HttpServer({"/o": V2}, changed) as server:
        adopt(tmp_path / "o", server)
        assert fetch(server, tmp_path / "o").sha256 == OTHER_SHA256


@pytest.mark.parametrize("ignore_if_range", [False, True])
def test_dl_05_a_file_that_changed_is_fetched_anew(tmp_path: Path, ignore_if_range: bool) -> None:
    leave(tmp_path / "o", 300)
    with HttpServer({"/o": V2}, Twist(ignore_if_range=ignore_if_range)) as server:
        adopt(tmp_path / "o", server)
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.version) == (OTHER_SHA256, '"v2"')


def test_dl_06_two_short_bodies_and_a_good_one_make_the_file(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(cut=600), Twist(cut=600)) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.attempts, got.transferred) == (OBJECT_SHA256, 3, 1000)


@pytest.mark.parametrize("ignore_range", [False, True])
def test_dl_06_a_body_that_is_always_short_fails_and_its_part_is_kept(
    tmp_path: Path, ignore_range: bool
) -> None:
    twists = [Twist(cut=600, ignore_range=ignore_range)] * 99
    with HttpServer({"/o": V1}, *twists) as server:
        assert "run again to go on" in failed(server, tmp_path / "o")
    assert (tmp_path / "o.partial").read_bytes() == OBJECT[:600]
    assert has_checkpoint(tmp_path / "o")


def test_dl_06_short_chunks_are_not_the_file_that_a_listing_states(tmp_path: Path) -> None:
    with HttpServer(
        {"/o": V1}, *[Twist(chunked=True, body=OBJECT[:600], ignore_range=True)] * 9
    ) as s:
        assert "ended after 600 of 1,000 bytes, twice" in refused(s, tmp_path / "o", expect=1000)


def test_dl_06_short_chunks_without_a_listing_are_of_unknown_length(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(chunked=True, body=OBJECT[:600])) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.bytes, got.length_known) == (600, False)


@pytest.mark.parametrize("size", [999, 1001])
def test_another_size_than_the_listing_states_is_an_error_at_once(
    tmp_path: Path, size: int
) -> None:
    with HttpServer({"/o": V1}) as server:
        message = refused(server, tmp_path / "o", expect=size)
    assert f"has 1,000 bytes, its listing states {size:,}" in message
    assert server.requests[1:] == []


def test_more_chunks_than_the_listing_states_are_an_error_at_once(tmp_path: Path) -> None:
    with HttpServer({"/o": V1}, Twist(chunked=True)) as server:
        assert "more than the 900 bytes" in refused(server, tmp_path / "o", expect=900)


def test_a_listing_that_states_another_size_now_drops_what_is_held(tmp_path: Path) -> None:
    leave(tmp_path / "o", 300)
    with HttpServer({"/o": Served(OTHER[:900], '"v2"')}) as server:
        adopt(tmp_path / "o", server)
        assert fetch(server, tmp_path / "o", expect=900).transferred == 900
    assert "range" not in server.requests[0].headers


def test_a_content_length_that_is_too_long_never_makes_a_file(tmp_path: Path) -> None:
    lie = Twist(headers={"Content-Length": "1001"}, cut=1000)
    with HttpServer({"/o": V1}, *[lie] * 9) as server:
        failed(server, tmp_path / "o")


def test_another_length_of_the_same_version_is_a_fault(tmp_path: Path) -> None:
    lie = Twist(body=OBJECT[:900], ignore_range=True)
    with HttpServer({"/o": V1}, Twist(cut=300), lie) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.attempts) == (OBJECT_SHA256, 3)


@pytest.mark.parametrize("encoding", ["gzip", "br", "aws-chunked"])
def test_an_encoded_body_is_refused_and_never_kept(tmp_path: Path, encoding: str) -> None:
    with HttpServer({"/o": V1}, Twist(headers={"Content-Encoding": encoding})) as server:
        assert f"Content-Encoding '{encoding}'" in refused(server, tmp_path / "o")
    assert list(tmp_path.iterdir()) == []


def test_an_encoded_rest_is_refused_and_what_is_held_stays(tmp_path: Path) -> None:
    with HttpServer(
        {"/o": V1}, Twist(cut=600), Twist(headers={"Content-Encoding": "gzip"})
    ) as server:
        refused(server, tmp_path / "o")
    assert (tmp_path / "o.partial").read_bytes() == OBJECT[:600]


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": "bytes 299-998/1000"},
        {"Content-Range": "bytes 0-699/1000"},
        {"Content-Range": "bytes 300-999/1001"},
        {"Content-Range": "bytes 300-1000/1000"},
        {"Content-Range": "bytes 300-998/1000"},
        {"Content-Range": "bytes 300-299/1000"},
        {"Content-Range": "bytes */1000"},
        {"Content-Range": "rows 300-999/1000"},
        {"Content-Range": None},
        {"ETag": '"v2"'},
        {"ETag": None},
        {"ETag": 'W/"v1"'},
        {"Content-Type": "multipart/byteranges; boundary=x"},
    ],
)
def test_a_part_that_is_not_the_rest_is_not_taken(
    tmp_path: Path, headers: dict[str, str | None]
) -> None:
    with HttpServer({"/o": V1}, Twist(cut=300), Twist(headers=headers)) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.attempts, got.transferred) == (OBJECT_SHA256, 3, 1300)
    assert "range" not in server.requests[2].headers


def test_a_part_that_is_less_than_the_rest_is_taken_and_the_rest_asked_for(tmp_path: Path) -> None:
    capped = Twist(headers={"Content-Range": "bytes 300-499/1000"}, body=OBJECT[300:500])
    with HttpServer({"/o": V1}, Twist(cut=300), capped) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.attempts, got.transferred) == (OBJECT_SHA256, 3, 1000)


def test_a_part_in_chunks_longer_than_told_is_dropped(tmp_path: Path) -> None:
    long = Twist(body=OBJECT[300:] + b"!", chunked=True)
    with HttpServer({"/o": V1}, Twist(cut=300), long) as server:
        assert fetch(server, tmp_path / "o").sha256 == OBJECT_SHA256


def test_a_part_of_unknown_total_is_taken(tmp_path: Path) -> None:
    starred = Twist(headers={"Content-Range": "bytes 300-999/*"})
    with HttpServer({"/o": V1}, Twist(cut=300), starred) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.transferred) == (OBJECT_SHA256, 1000)


def test_a_part_that_was_not_asked_for_is_a_fault(tmp_path: Path) -> None:
    part = Twist(206, {"Content-Range": "bytes 0-999/1000"})
    with HttpServer({"/o": V1}, *[part] * 9) as server:
        assert "HTTP 206, a part, where the whole was asked" in failed(server, tmp_path / "o")


@pytest.mark.parametrize(
    "served",
    [
        Served(OBJECT, etag=None),
        Served(OBJECT, etag='W/"v1"'),
        Served(OBJECT, etag="v1 without quotes"),
        Served(OBJECT, etag=None, last_modified=NOW),  # of the very minute: may name two states
        Served(OBJECT, etag=None, last_modified="yesterday"),
    ],
)
def test_a_source_that_does_not_prove_its_version_begins_anew(
    tmp_path: Path, served: Served
) -> None:
    with HttpServer({"/o": served}, Twist(cut=300)) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.transferred) == (OBJECT_SHA256, 1300)
    assert "range" not in server.requests[1].headers


def test_what_came_from_a_source_without_a_version_is_no_checkpoint(tmp_path: Path) -> None:
    leave(tmp_path / "o", 300, Served(OBJECT, etag=None))
    assert not has_checkpoint(tmp_path / "o")


def test_an_old_time_proves_a_version(tmp_path: Path) -> None:
    served = Served(OBJECT, etag='W/"v1"', last_modified=OLD)
    with HttpServer({"/o": served}, Twist(cut=300)) as server:
        assert fetch(server, tmp_path / "o").transferred == 1000
    assert server.requests[1].headers["if-range"] == OLD


@pytest.mark.parametrize("header", ["Last-Modified", "ETag"])
def test_a_part_of_another_time_is_not_taken(tmp_path: Path, header: str) -> None:
    served = Served(OBJECT, etag='W/"v1"', last_modified=OLD)
    other = Twist(headers={header: NOW if header == "Last-Modified" else 'W/"v2"'})
    with HttpServer({"/o": served}, Twist(cut=300), other) as server:
        got = fetch(server, tmp_path / "o")
    assert (got.sha256, got.attempts) == (OBJECT_SHA256, 3)


def test_a_source_that_changes_at_every_try_is_given_up(tmp_path: Path) -> None:
    twists = [Twist(become=Served(OBJECT, f'"v{i}"'), cut=100 * (i + 1)) for i in range(9)]
    with HttpServer({"/o": V1}, *twists) as server:
        assert "begin anew 4 times" in failed(server, tmp_path / "o")
