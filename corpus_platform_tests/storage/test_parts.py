import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus_platform.errors import StorageError
from corpus_platform.storage import parts as parts_module
from corpus_platform.storage.parts import Origin, Part, PartsFile, gaps, has_parts

URL = "s3://crawls/a/part-0.jsonl.zst"
ABC = Origin(URL, '"v1"', 9)
# sha256 of b"abc", b"def", b"ghi" and of the three in a row, by sha256sum(1)
SHA = {
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"def": "cb8379ac2098aa165029e3938a51da0bcecfc008fd6795f401178647f96c5b34",
    b"ghi": "50ae61e841fac4e8f9e40baf2ad36ec868922ea48368c18f9535e47db56dd7fb",
}
# And those of beginnings of parts
SHA_BEGUN = {
    b"a": "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
    b"ab": "fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603",
    b"de": "959a45d44e6fcf58361ed004681556fe50129f2109e817dec098c00c9e5d2578",
}
WHOLE = "19cc02f26df43cc571bc9ed7b0c4d29224a3ec229529221725ef76d021c8326f"


def begun(target: Path, *texts: bytes) -> None:
    """Leave a file of which these parts are there, as a killed process does."""
    with PartsFile.create(target, ABC) as file:
        for text in texts:
            file.write(start_of(text), text)
        file.keep([Part(start_of(text), 3, SHA[text]) for text in texts])


def reopened(target: Path) -> PartsFile:
    file = PartsFile.reopen(target, URL)
    assert file is not None
    return file


def start_of(text: bytes) -> int:
    return b"abcdefghi".index(text)


def listed(target: Path) -> list[int]:
    return [row["start"] for row in json.loads(lines_of(target)[0])["parts"]]


def lines_of(target: Path) -> list[str]:
    """Return the lines of a list: what was flushed, and the marks."""
    return (target.parent / f"{target.name}.partial.json").read_text().splitlines()


def mark(file: PartsFile, text: bytes) -> None:
    """Have the beginning of a part come."""
    file.write(start_of(text), text)
    file.mark(Part(start_of(text), len(text), SHA_BEGUN[text]))


def append(target: Path, line: bytes) -> None:
    with (target.parent / f"{target.name}.partial.json").open("ab") as file:
        file.write(line)


@pytest.mark.parametrize(
    ("there", "size", "expected"),
    [
        ([], 0, []),
        ([], 4, [(0, 4)]),
        ([], 8, [(0, 4), (4, 8)]),
        ([], 9, [(0, 4), (4, 8), (8, 9)]),
        ([(0, 4)], 9, [(4, 8), (8, 9)]),
        ([(2, 1)], 9, [(0, 2), (3, 7), (7, 9)]),
        ([(5, 4), (0, 3)], 9, [(3, 5)]),
        ([(0, 9)], 9, []),
    ],
)
def test_gaps_are_cut_to_pieces(
    there: list[tuple[int, int]], size: int, expected: list[tuple[int, int]]
) -> None:
    assert gaps([Part(start, count, "") for start, count in there], size, 4) == expected


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 9))
def test_parts_and_gaps_cover_each_byte_once(have: list[bool], part_bytes: int) -> None:
    parts = [Part(i, 1, "") for i, there in enumerate(have) if there]
    ranges = [(p.start, p.end) for p in parts] + gaps(parts, len(have), part_bytes)
    covered = sorted(i for start, end in ranges for i in range(start, end))
    assert covered == list(range(len(have)))
    assert all(0 < end - start <= part_bytes for start, end in gaps(parts, len(have), part_bytes))


def test_a_whole_file_gets_its_name_and_nothing_else_stays(tmp_path: Path) -> None:
    with PartsFile.create(tmp_path / "x", ABC) as file:
        for text in (b"ghi", b"abc", b"def"):
            file.write(start_of(text), text)
        file.keep([Part(start_of(text), 3, SHA[text]) for text in SHA])
        sha256 = file.finish()
        file.publish()
    assert (sha256, [p.name for p in tmp_path.iterdir()]) == (WHOLE, ["x"])
    assert (tmp_path / "x").read_bytes() == b"abcdefghi"


def test_a_file_with_a_gap_is_not_finished(tmp_path: Path) -> None:
    begun(tmp_path / "x", b"abc", b"ghi")
    with reopened(tmp_path / "x") as file, pytest.raises(StorageError, match="3 of 9 bytes"):
        file.finish()


def test_what_a_killed_process_listed_is_gone_on_with(tmp_path: Path) -> None:
    begun(tmp_path / "x", b"def")
    assert has_parts(tmp_path / "x")
    with reopened(tmp_path / "x") as file:
        assert (file.origin, file.kept, file.missing(100)) == (ABC, 3, [(0, 3), (6, 9)])


def test_a_part_whose_bytes_are_not_those_listed_is_fetched_again(tmp_path: Path) -> None:
    begun(tmp_path / "x", b"abc", b"def")
    with (tmp_path / "x.partial").open("r+b") as file:
        file.seek(4)
        file.write(b"!")
    with reopened(tmp_path / "x") as file:
        assert file.missing(100) == [(3, 9)]


def test_a_file_cut_short_by_a_power_cut_keeps_the_parts_it_still_has(tmp_path: Path) -> None:
    begun(tmp_path / "x", b"abc", b"ghi")
    (tmp_path / "x.partial").write_bytes(b"abc")
    with reopened(tmp_path / "x") as file:
        assert file.missing(100) == [(3, 9)]


def test_bytes_are_flushed_before_they_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = parts_module.os.fsync, parts_module.os.replace
    with PartsFile.create(tmp_path / "x", ABC) as file:
        file.write(0, b"abc")
        monkeypatch.setattr(
            parts_module.os, "fsync", lambda number: (done.append("flushed"), fsync(number))
        )
        monkeypatch.setattr(
            parts_module.os, "replace", lambda *at: (done.append("listed"), replace(*at))
        )
        file.keep([Part(0, 3, SHA[b"abc"])])
    assert done == ["flushed", "flushed", "listed"]  # the bytes, the list


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"format": "parts-2"}\n',
        b'{"format": "parts-2", "url": "u", "etag": "e", "bytes": 9, "parts": [{"start": 0}]}\n',
        b'{"format": "parts-2", "url": "u", "etag": "e", "bytes": 9, "parts": 5}\n',
        b'{"format": "parts-2", "url": "\xff", "etag": "e", "bytes": 9, "parts": []}\n',
    ],
)
def test_a_list_that_cannot_be_read_counts_as_none(tmp_path: Path, damage: bytes) -> None:
    begun(tmp_path / "x", b"abc")
    (tmp_path / "x.partial.json").write_bytes(damage)
    assert not has_parts(tmp_path / "x")
    assert PartsFile.reopen(tmp_path / "x", URL) is None


def test_a_list_of_another_format_counts_as_none(tmp_path: Path) -> None:
    begun(tmp_path / "x", b"abc")
    path = tmp_path / "x.partial.json"
    path.write_text(path.read_text().replace("parts-2", "parts-3"))
    assert not has_parts(tmp_path / "x")


@pytest.mark.parametrize(
    "there",
    [[(0, 3), (2, 3)], [(-1, 3)], [(0, 0)], [(8, 3)], [(0, 10)]],
    ids=["overlap", "before", "empty", "beyond", "longer"],
)
def test_a_list_that_contradicts_itself_counts_as_none(
    tmp_path: Path, there: list[tuple[int, int]]
) -> None:
    begun(tmp_path / "x", b"abc")
    path = tmp_path / "x.partial.json"
    whole = json.loads(path.read_bytes())
    rows = [{"start": s, "bytes": n, "sha256": SHA[b"abc"]} for s, n in there]
    path.write_text(json.dumps(whole | {"parts": rows}) + "\n")
    assert not has_parts(tmp_path / "x")
    path.write_text("\n".join(map(json.dumps, [whole | {"parts": []}, *rows, ""])))  # as marks
    assert not has_parts(tmp_path / "x")


def test_a_killed_process_leaves_the_beginnings_of_parts(tmp_path: Path) -> None:
    with PartsFile.create(tmp_path / "x", ABC) as file:
        mark(file, b"de")
        mark(file, b"a")
        mark(file, b"ab")
    assert has_parts(tmp_path / "x")
    with reopened(tmp_path / "x") as file:
        assert (file.kept, file.missing(100)) == (4, [(2, 3), (5, 9)])


def test_a_mark_whose_bytes_a_power_cut_took_is_not_believed(tmp_path: Path) -> None:
    with PartsFile.create(tmp_path / "x", ABC) as file:
        mark(file, b"a")
        mark(file, b"ab")
        mark(file, b"de")
    (tmp_path / "x.partial").write_bytes(b"a\0\0de")
    with reopened(tmp_path / "x") as file:
        assert file.missing(100) == [(1, 3), (5, 9)]


@pytest.mark.parametrize("torn", [b'{"start":3,"by', b"\0\0\0\0\n", b"[]\n", b"\xff\n"])
def test_marks_up_to_the_first_that_cannot_be_read_count(tmp_path: Path, torn: bytes) -> None:
    with PartsFile.create(tmp_path / "x", ABC) as file:
        mark(file, b"ab")
    append(tmp_path / "x", torn)
    append(tmp_path / "x", json.dumps({"start": 3, "bytes": 1, "sha256": "?"}).encode() + b"\n")
    with reopened(tmp_path / "x") as file:
        assert file.missing(100) == [(2, 9)]
        mark(file, b"de")  # behind a list that was written anew
    with reopened(tmp_path / "x") as file:
        assert file.missing(100) == [(2, 3), (5, 9)]


def test_the_list_of_one_part_takes_no_mark_of_another_away(tmp_path: Path) -> None:
    with PartsFile.create(tmp_path / "x", ABC) as file:
        mark(file, b"ab")
        file.write(6, b"ghi")
        file.keep([Part(6, 3, SHA[b"ghi"])])
        mark(file, b"de")
    assert listed(tmp_path / "x") == [0, 6]  # what was marked was flushed too
    assert lines_of(tmp_path / "x")[1:] == [
        f'{{"start":3,"bytes":2,"sha256":"{SHA_BEGUN[b"de"]}"}}'
    ]
    with reopened(tmp_path / "x") as file:
        assert file.missing(100) == [(2, 3), (5, 6)]


def test_a_mark_made_while_a_list_is_written_stands_behind_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = parts_module.os.fsync
    with PartsFile.create(tmp_path / "x", ABC) as file:
        mark(file, b"a")
        monkeypatch.setattr(
            parts_module.os, "fsync", lambda number: (mark(file, b"ab"), fsync(number))
        )
        file.keep([])
    first, *marks = lines_of(tmp_path / "x")
    assert json.loads(first)["parts"] == [{"start": 0, "bytes": 1, "sha256": SHA_BEGUN[b"a"]}]
    assert marks == [f'{{"start":0,"bytes":2,"sha256":"{SHA_BEGUN[b"ab"]}"}}']


def test_a_part_that_is_finished_needs_no_mark(tmp_path: Path) -> None:
    with PartsFile.create(tmp_path / "x", ABC) as file:
        mark(file, b"ab")
        file.write(0, b"abc")
        file.keep([Part(0, 3, SHA[b"abc"])])
        file.keep([])
    assert json.loads(lines_of(tmp_path / "x")[0])["parts"] == [
        {"start": 0, "bytes": 3, "sha256": SHA[b"abc"]}
    ]
    assert len(lines_of(tmp_path / "x")) == 1


def test_parts_of_another_object_are_not_taken(tmp_path: Path) -> None:
    begun(tmp_path / "x", b"abc")
    assert PartsFile.reopen(tmp_path / "x", "s3://crawls/other") is None


def test_a_list_without_its_file_counts_as_none(tmp_path: Path) -> None:
    begun(tmp_path / "x", b"abc")
    (tmp_path / "x.partial").unlink()
    assert not has_parts(tmp_path / "x")
    assert PartsFile.reopen(tmp_path / "x", URL) is None


def test_a_file_begun_anew_holds_nothing_of_the_old_one(tmp_path: Path) -> None:
    begun(tmp_path / "x", b"abc", b"def")
    with PartsFile.create(tmp_path / "x", Origin(URL, '"v2"', 9)) as file:
        assert file.missing(100) == [(0, 9)]
        file.write(6, b"ghi")
        file.keep([Part(6, 3, SHA[b"ghi"])])
    assert listed(tmp_path / "x") == [6]
    assert (tmp_path / "x.partial").read_bytes() == b"\0\0\0\0\0\0ghi"


def test_a_thread_that_is_late_writes_nothing(tmp_path: Path) -> None:
    with PartsFile.create(tmp_path / "x", ABC) as file:
        assert file.write(0, b"abc")
    assert not file.write(3, b"def")
    before = lines_of(tmp_path / "x")
    file.mark(Part(3, 3, SHA[b"def"]))
    assert lines_of(tmp_path / "x") == before
    assert (tmp_path / "x.partial").read_bytes() == b"abc"
