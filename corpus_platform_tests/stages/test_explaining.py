"""Tests of the stories of documents, held against the tables and files that they are told from."""

import gzip
import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
from backports import zstd
from tokenizers import Tokenizer

from corpus_platform.errors import StorageError, UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.explaining import MOST, Explanation, explain
from corpus_platform.stages.project import Project
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform_tests.small import SHARDS, register, run_chain, write_shard

pytestmark = pytest.mark.xdist_group("explaining")  # both corpora are made once
FIRST, SECOND, LAST = SHARDS


@pytest.fixture(scope="module")
def corpus(finished_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings file of a corpus of which everything is made; the tests add indexes to it."""
    folder = tmp_path_factory.mktemp("explained") / "finished"
    shutil.copytree(finished_once, folder)
    return folder / "corpus.yaml"


@pytest.fixture
def project(corpus: Path) -> Project:
    """That corpus."""
    return open_project(load_settings(corpus), read_only=True)


@pytest.fixture
def release(project: Project) -> Path:
    """The folder of its release."""
    return project.present("shuffled_bins", None).folder


def _source(config: Path, shard: str) -> list[dict]:
    """Read the records of a shard as anybody would."""
    crawl, name = shard.split("/")
    path = config.parent / "source" / f"crawl={crawl}" / name
    if name.endswith(".parquet"):
        return pq.read_table(path).to_pylist()
    unpack = zstd.decompress if name.endswith(".zst") else gzip.decompress
    return [json.loads(line) for line in unpack(path.read_bytes()).splitlines()]


@pytest.mark.parametrize("shard", SHARDS)
def test_the_story_of_a_record_is_what_every_table_says_of_it(
    shard: str, corpus: Path, project: Project, release: Path
) -> None:
    records = _source(corpus, shard)
    clusters = pl.read_parquet(project.present("dedup_clusters", None).path("clusters.parquet"))
    decided = {r["row"]: r for r in clusters.filter(pl.col("shard") == shard).to_dicts()}
    listed = {(s, r): (f, a, n) for f, a, n, s, r, *_ in pl.read_parquet(release / "documents.parquet").rows()}  # fmt: skip
    for row in [*range(0, len(records), 9), len(records) - 1]:
        (told,) = explain(project, f"{shard}:{row}").documents
        assert (told.id, told.source and told.source.line) == (records[row]["id"], row + 1)
        if row not in decided:
            assert (told.state, told.copies, told.released) == ("dropped", None, None)
            continue
        wanted = decided[row]
        assert told.url == records[row]["url"]
        assert told.state == ("kept" if wanted["kept"] else f"{wanted['kind']}_copy")
        assert told.copies is not None
        assert told.copies.cluster_size == wanted["cluster_size"]
        assert told.notes == []
        if told.released is None:
            assert (shard, row) not in listed
            continue
        (place,) = told.released.places
        assert (place.file, place.start, place.tokens) == listed[shard, row]
        assert told.packed is not None
        assert (told.packed.split, told.packed.tokens) == (wanted["split"], place.tokens)


def test_a_near_copy_names_its_twin_which_has_a_story_too(project: Project) -> None:
    (told,) = explain(project, "again-bltin-code-objects-0").documents
    assert (told.state, told.packed, told.released) == ("near_copy", None, None)
    assert told.copies is not None
    assert told.copies.similarity is not None
    assert 0.8 <= told.copies.similarity < 1
    assert told.twin is not None
    assert (told.twin.id, told.twin.state) == ("bltin-code-objects-0", "kept")
    assert told.twin.released is not None


def test_a_dropped_record_is_found_by_id_and_by_url(project: Project) -> None:
    for asked in ("short", "https://example.org/short", f"{LAST}:40"):
        (told,) = explain(project, asked).documents
        assert (told.state, told.row) == ("dropped", 40)
        assert told.dropped is not None
        assert (told.dropped.rule, told.dropped.value, told.dropped.threshold) == ("too_short", 10, 200)  # fmt: skip
    assert explain(project, "https://example.org/short").documents[0].url is not None


def test_all_documents_of_a_url_are_told_of(corpus: Path, project: Project) -> None:
    url = "https://example.org/bltin-code-objects-0"
    wanted = [
        (shard, row)
        for shard in SHARDS
        for row, record in enumerate(_source(corpus, shard))
        if record["url"] == url
    ]
    assert len(wanted) == 2
    assert [(d.shard, d.row) for d in explain(project, url).documents] == wanted


def test_any_token_is_some_documents(corpus: Path, project: Project, release: Path) -> None:
    tokens = np.fromfile(release / "train-00000.bin", "<u2")
    ends = np.fromfile(release / "train-00000.index", "<u8").tolist()
    listed = pl.read_parquet(release / "documents.parquet").filter(pl.col("file") == "train-00000.bin")  # fmt: skip
    tokenizer = Tokenizer.from_file(str(release / "tokenizer.json"))
    borders = list(pairwise([0, *ends]))
    for number in (0, 1, 50, len(ends) - 1):
        first, end = borders[number]
        shard, row = listed.row(number, named=True)["shard"], listed.row(number, named=True)["row"]
        for offset in (first, (first + end) // 2, end - 1):
            found = explain(project, f"train-00000.bin:{offset}")
            assert found.at is not None
            assert (found.at.token, found.at.inside) == (tokens[offset], offset - first)
            assert [(d.shard, d.row) for d in found.documents] == [(shard, row)]
            around = found.at.before + found.at.text + found.at.after
            ids = tokens[max(first, offset - 32) : min(end, offset + 33)].tolist()
            wanted = tokenizer.decode(ids, skip_special_tokens=False)
            assert around == wanted
    text = _source(corpus, shard)[row]["text"]  # of the last one: nothing but its end follows
    last = explain(project, f"train-00000:{ends[-1] - 2}").at
    assert last is not None
    assert last.before[-20:] in text


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("nothing", "no document of 3 shards has the id or URL 'nothing'"),
        ("https://example.org/x", "no document of 3 shards has the URL 'https://example.org/x'"),
        (f"{LAST}:41", f"{LAST} has 41 records: rows 0 to 40"),
        ("2026-44/part-00000.parket:3", f"no shard '2026-44/part-00000.parket'; there is {LAST}"),
        ("train-00000.bin:99999999", "train-00000.bin of release "),
        (LAST, f"{LAST!r} is a shard: ask for one of its records, from {LAST}:0 on"),
        ("train-00007.bin:1", "no token file train-00007.bin: release "),
    ],
)
def test_what_is_not_there_is_told_by_what_comes_nearest(
    asked: str, said: str, project: Project
) -> None:
    found = explain(project, asked)
    assert not found.found
    assert found.said[0].startswith(said)


def test_a_release_that_is_not_there_is_refused(project: Project) -> None:
    with pytest.raises(UsageError, match="no release 'ffffffff'"):
        explain(project, "short", release="ffffffff")


def test_what_is_stale_or_gone_is_said_and_the_rest_is_told(finished: Path) -> None:
    finished.write_text(finished.read_text() + "clean: {set: {too_short.min_chars: 201}}\n")
    project = open_project(load_settings(finished), read_only=True)
    (told,) = explain(project, "page-ru").documents
    assert told.state == "kept"
    assert any("cleaned_documents is stale: setting rules.too_short.min_chars changed from 200 to 201" in n for n in told.notes)  # fmt: skip
    shutil.rmtree(finished.parent / "data" / "raw_shards")
    shutil.rmtree(finished.parent / "data" / "releases")
    (finished.parent / "data" / "releases").mkdir()
    (told,) = explain(project, "page-ru").documents
    assert (told.source, told.released) == (None, None)
    assert "no release is in force" in told.notes
    project.registry.retire(FIRST)
    assert "its shard is retired" in explain(project, f"{FIRST}:0").documents[0].notes[0]


def test_a_table_that_cannot_be_read_ends_with_words(finished: Path) -> None:
    project = open_project(load_settings(finished), read_only=True)
    path = project.present("cleaned_documents", LAST).path("documents.parquet")
    path.write_bytes(b"PAR1" + bytes(path.stat().st_size - 8) + b"PAR1")
    with pytest.raises(StorageError, match="corpus verify"):
        explain(project, f"{LAST}:1")


ODD = """\
storage: data
sources: [{glob: "source/{crawl}/*"}]
clean: {preset: none}
tokenizer: {vocab_size: 300, sample_bytes: 30000}
split: {validation: 0}
pack: {strategy: best_fit, sequence_length: 128, max_document_tokens: 200}
checks: {max_quarantined_share: 1.0}
run: {workers: 1}
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A corpus in rows, with a prompt, cut documents, ids met often and lines that are no records."""
    folder = tmp_path_factory.mktemp("odd")
    texts = [f"Number {n} is {n * 7919} of {n * 104729}. " * (2 + n) for n in range(30)]
    records = [{"id": "same" if n > 5 else f"d{n}", "text": text} for n, text in enumerate(texts)]
    records[3]["no_loss_ranges"] = [[0, 10]]  # ty: ignore[invalid-assignment]
    lines = [json.dumps(record) for record in records]
    lines[2:2] = ["", '{"text": 5}', "", "{broken"]
    path = folder / "source" / "2026-40" / "a.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    (folder / "corpus.yaml").write_text(ODD)
    run_chain(open_project(load_settings(folder / "corpus.yaml")))
    return open_project(load_settings(folder / "corpus.yaml"), read_only=True)


def _one(found: Explanation) -> tuple:
    (told,) = found.documents
    return told, told.source


def test_a_record_in_quarantine_is_found_by_its_row(rows: Project) -> None:
    for row, line, reason, begin in [
        (2, 4, "text_not_a_string", '{"text": 5}'),
        (3, 6, "invalid_json", "{broken"),
    ]:
        told, source = _one(explain(rows, f"2026-40/a.jsonl:{row}"))
        assert (told.state, told.id, source.line) == ("quarantined", None, line)
        assert (told.quarantined.reason, told.quarantined.line) == (reason, line)
        assert told.quarantined.excerpt == begin


def test_pieces_masks_and_cuts_are_told_of(rows: Project) -> None:
    packed = rows.present("packed_bins", "2026-40/a.jsonl")
    told, source = _one(explain(rows, "d3"))
    assert (told.row, source.line) == (5, 8)
    assert told.packed.masked > 0
    (last,) = explain(rows, "2026-40/a.jsonl:31").documents
    lines = pl.read_parquet(packed.path("documents.parquet")).filter(pl.col("row") == 31)
    assert last.packed is not None
    assert last.released is not None
    assert (last.packed.tokens, last.packed.cut) == (200, int(lines["cut"].sum()))
    assert last.packed.cut > 0
    assert [p.offset for p in last.released.places] == sorted(lines["offset"])
    assert len(last.released.places) == 2


def test_padding_is_named_as_padding(rows: Project) -> None:
    folder = rows.present("shuffled_bins", None).folder
    ends = np.fromfile(folder / "train-00000.index", "<u8")
    document = np.fromfile(folder / "train-00000.pieces", "<i8")[::2]
    entry = int(np.flatnonzero(document < 0)[0])
    found = explain(rows, f"train-00000.bin:{int(ends[entry]) - 1}")
    assert found.found
    assert found.at is not None
    assert (found.at.line, found.at.inside, found.documents) == (None, None, ())


def test_of_many_documents_of_one_id_the_rest_is_counted(rows: Project) -> None:
    found = explain(rows, "same")
    assert (len(found.documents), found.more) == (MOST, 24 - MOST)


def test_a_shard_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    (tmp_path / "corpus.yaml").write_text("sources: [{glob: 'source/{crawl}/*'}]")
    write_shard(tmp_path / "source" / "2026-40" / "a.jsonl.gz", [{"text": "one"}])
    path = tmp_path / "source" / "2026-40" / "a.jsonl.gz"
    path.write_bytes(path.read_bytes()[:-4])
    project = open_project(load_settings(tmp_path / "corpus.yaml"))
    assert not explain(project, "x").found
    (shard,) = register(project)
    assert "nothing is known of the records" in explain(project, f"{shard}:0").said[0]
    fetch_shard(project, shard)
    with pytest.raises(Exception, match="cut off"):
        clean_documents(project, shard)
    assert "cannot be read, so none of its records was taken" in explain(project, f"{shard}:0").said[0]  # fmt: skip
    assert f"cannot be read: {shard}" in explain(project, "x").said[-1]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (f"{LAST}:{'9' * 30}", f"{LAST} has 41 records: rows 0 to 40"),
        (f"train-00000.bin:{'9' * 5000}", "train-00000.bin of release "),
    ],
)
def test_a_number_of_any_length_is_beyond_the_end(asked: str, said: str, project: Project) -> None:
    """Python itself refuses to read 5,000 digits."""
    found = explain(project, asked)
    assert found.said[0].startswith(said)
    assert not found.found


def test_zeros_before_a_number_do_not_count(project: Project) -> None:
    found = explain(project, f"{LAST}:{'0' * 5000}3")
    assert [(one.shard, one.row) for one in found.documents] == [(LAST, 3)]
