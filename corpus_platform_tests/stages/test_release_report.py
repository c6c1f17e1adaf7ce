"""Tests of the report of a release: figures held against the files, the same wherever it is made."""

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Product, Project
from corpus_platform.stages.release_figures import Counted, decode_places
from corpus_platform.stages.release_report import _estimate, write_report
from corpus_platform.stages.shuffled_bins import publish_release
from corpus_platform_tests.small import PAGES, SHARDS, register


@pytest.fixture(scope="module")
def project(finished_once: Path) -> Project:
    """The finished small corpus, which is only read."""
    return open_project(load_settings(finished_once / "corpus.yaml"), read_only=True)


def _draft(project: Project, folder: Path) -> Path:
    """Copy the files of the release that a report is written from."""
    release = project.present("shuffled_bins", None).folder
    written = ("manifest.json", "REPORT.md", "sources.json")
    return Path(shutil.copytree(release, folder, ignore=shutil.ignore_patterns(*written)))


def _write(project: Project, draft: Path, **left_out: str) -> str:
    manifest = project.present("shuffled_bins", None).manifest
    assert write_report(project, draft, manifest.ledger, left_out, manifest.numbers) == [
        Product("sources.json"),
        Product("REPORT.md"),
    ]
    return (draft / "REPORT.md").read_text(encoding="utf-8")


def _section(text: str, name: str) -> list[list[str]]:
    lines = text.split(f"## {name}\n\n")[1].split("\n\n")[0].splitlines()[2:]
    return [line.strip("| ").split(" | ") for line in lines]


@pytest.fixture(scope="module")
def text(project: Project, tmp_path_factory: pytest.TempPathFactory) -> str:
    return _write(project, _draft(project, tmp_path_factory.mktemp("report") / "draft"))


def test_the_small_corpus_passes_all_but_the_compression_of_chinese(text: str) -> None:
    rows = _section(text, "Acceptance")
    assert [row[2].strip("*") for row in rows] == ["pass"] * 6 + ["warn"] + ["pass"] * 2
    assert "in zh a character takes several tokens" in rows[6][3]
    assert rows[3][3].startswith("235 end tokens: one in 876.0")


def test_counts_are_those_of_the_shards(text: str) -> None:
    rows = _section(text, "What became of the documents")
    assert rows[2][1:9] == ["3", "294", "0", "294", "17", "277", "36", "241"]
    assert rows[2][9:11] == ["235", "6"]
    assert [r[0] for r in _section(text, "Tokens by shard")] == list(SHARDS)


def test_bytes_and_characters_of_a_language_are_those_of_its_texts(text: str) -> None:
    found = {row[0]: row[1:] for row in _section(text, "Compression")}
    page = PAGES["zh"]
    documents, tokens, chars, size = (float(v.replace(",", "")) for v in found["zh"])
    assert documents == 1
    assert round(tokens * chars) == len(page)
    assert round(tokens * size) == len(page.encode())


@pytest.mark.parametrize("pack", ["", "pack: {strategy: pad, sequence_length: 512}\n"])
def test_rare_tokens_are_those_that_a_plain_count_of_train_finds(finished: Path, pack: str) -> None:
    """The token of padding is none, whether it fills rows up or not."""
    with finished.open("a", encoding="utf-8") as file:
        file.write(pack)
    project = open_project(load_settings(finished))
    for shard in SHARDS:
        pack_shard(project, shard)
    release = publish_release(project).artifact
    counts = Counter(np.fromfile(release.path("train-00000.bin"), "<u2").tolist())
    tokenizer = json.loads(release.path("tokenizer.json").read_bytes())
    control = {token["id"] for token in tokenizer["added_tokens"]}
    never = set("\xc0\xc1") | {chr(byte) for byte in range(0xF5, 0x100)}
    ids = [i for t, i in tokenizer["model"]["vocab"].items() if i not in control and not never & set(t)]  # fmt: skip
    rare = [i for i in ids if counts[i] < 5]
    numbers = release.numbers
    found = [numbers[f"vocabulary{name}"] for name in ("", "_rare", "_never")]
    assert found == [len(ids), len(rare), sum(counts[i] == 0 for i in rare)]
    listed = {int(n.split("/")[1]): v for n, v in numbers.items() if n.startswith("rare_token/")}
    assert listed == {i: counts[i] for i in listed}
    assert len(listed) == min(20, len(rare))
    text = release.path("REPORT.md").read_text(encoding="utf-8")
    assert f"Of {len(ids):,} tokens that a text may hold {len(rare):,} (" in text
    rows = text.split("The longest of them:\n\n")[1].split("\n\n")[0].splitlines()[2:]
    assert {int(row.split(" | ")[0].strip("| ")) for row in rows} == set(listed)


def test_the_files_are_named_with_their_hashes(project: Project, text: str, tmp_path: Path) -> None:
    draft = _draft(project, tmp_path / "draft")
    _write(project, draft)
    named = {row[0]: row[2].strip("`") for row in _section(text, "Files")}
    others = [p for p in draft.iterdir() if p.name != "REPORT.md"]
    assert named == {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in others}


def test_it_is_the_same_in_another_folder_and_names_none(
    finished: Path, text: str, tmp_path: Path
) -> None:
    project = open_project(load_settings(finished))
    register(project)
    again = _write(project, _draft(project, tmp_path / "x"))
    assert again == text
    assert str(finished.parent) not in text
    assert "/tmp" not in text


def test_shards_left_out_come_with_their_reasons(project: Project, tmp_path: Path) -> None:
    left_out = {"2026-40/bad": "cleaned_documents: readable"}
    text = _write(project, _draft(project, tmp_path / "x"), **left_out)
    assert _section(text, "Shards left out") == [["2026-40/bad", "cleaned\\_documents: readable"]]


def test_a_licence_is_shown_and_makes_nothing_due(finished: Path, tmp_path: Path) -> None:
    written = finished.read_text()
    finished.write_text(written.replace("/*", "/*\n    license: CC-BY-4.0"))
    project = open_project(load_settings(finished))
    register(project)
    text = _write(project, _draft(project, tmp_path / "x"))
    assert [row[2] for row in _section(text, "Sources")] == ["CC-BY-4.0"] * 2
    assert publish_release(project).made is False


def test_a_document_in_both_splits_fails(project: Project, tmp_path: Path) -> None:
    draft = _draft(project, tmp_path / "x")
    lines = pl.read_parquet(draft / "documents.parquet")
    held_out = lines.filter(pl.col("file") == "val-00000.bin").head(1)
    moved = held_out.with_columns(file=pl.lit("train-00000.bin"))
    pl.concat([lines, moved]).write_parquet(draft / "documents.parquet")
    row = _section(_write(project, draft), "Acceptance")[7]
    assert (row[2], row[3]) == ("**fail**", "1 of 6 validation documents are listed in train")


@pytest.mark.parametrize("order", ["abc", "bca", "cab", "cba"])
def test_the_estimate_does_not_depend_on_which_language_was_counted_first(order: str) -> None:
    sizes = {"a": 8318350, "b": 9275445, "c": 3910509}
    ratios = {"a": 2.38, "b": 3.71, "c": 4.04}
    fertility = {name: {"bytes_per_token": ratio} for name, ratio in ratios.items()}
    counted = Counted(kept_bytes=Counter({name: sizes[name] for name in order}))
    assert _estimate(counted, fertility) == _IN_ORDER  # else in the last digit


_IN_ORDER = 8318350 / 2.38 + 9275445 / 3.71 + 3910509 / 4.04


def test_rows_have_no_padding_in_any_figure(finished: Path, tmp_path: Path) -> None:
    with finished.open("a", encoding="utf-8") as file:
        file.write("pack: {strategy: best_fit, sequence_length: 512}\n")
    project = open_project(load_settings(finished))
    for shard in SHARDS:
        pack_shard(project, shard)
    publish_release(project)
    text = _write(project, _draft(project, tmp_path / "x"))
    assert _section(text, "Acceptance")[0][3].startswith("210,637 tokens of 2 bytes")
    assert _section(text, "Acceptance")[3][3].startswith("235 end tokens: one in 876.0")
    assert _section(text, "Compression")[0][0:2] == ["en", "231"]


def test_a_release_without_documents_is_told(finished: Path, tmp_path: Path) -> None:
    project = open_project(load_settings(finished))
    draft = _draft(project, tmp_path / "x")
    for base in ("train-00000", "val-00000"):
        for path in draft.glob(f"{base}.*"):
            path.unlink()
    lines = pl.read_parquet(draft / "documents.parquet")
    lines.clear().write_parquet(draft / "documents.parquet")
    assert _section(_write(project, draft), "Acceptance")[1][2] == "**fail**"


class Bin:
    """Tokens, and how long the rows are that they lie in."""

    def __init__(self, tokens: np.ndarray, row_tokens: int | None = None, pad: int = 3) -> None:
        self.tokens, self.header = tokens, SimpleNamespace(row_tokens=row_tokens, pad_id=pad)


def test_places_lie_in_every_file_by_its_size_and_are_the_same_each_time(project: Project) -> None:
    tokenizer = project.present("tokenizer", None).path("tokenizer.json").read_bytes()
    ids = np.arange(20, 220, dtype=np.uint16).repeat(5)
    bins = {"train-00000": Bin(ids), "train-00001": Bin(ids[:0]), "val-00000": Bin(ids[:3])}
    found = decode_places(bins, tokenizer, 42)  # ty: ignore
    assert found == decode_places(bins, tokenizer, 42)  # ty: ignore
    assert len(found) == 10
    assert {d.file for d in found} <= {"train-00000.bin", "val-00000.bin"}
    assert all(0 <= d.position <= 800 for d in found)


def test_a_place_in_padding_is_told_by_the_text_of_its_row(project: Project) -> None:
    tokenizer = project.present("tokenizer", None).path("tokenizer.json").read_bytes()
    ids = np.full((50, 400), 3, np.uint16)
    ids[:, 0] = 40  # a token of text, and padding behind it
    found = decode_places({"train-00000": Bin(ids.reshape(-1), 400)}, tokenizer, 42)  # ty: ignore
    assert {d.position % 400 for d in found} == {0}
    assert all(d.text for d in found)


@pytest.mark.parametrize(
    "settings",
    [
        "",
        "pack: {strategy: best_fit, sequence_length: 512}\n",
        "shuffle: {unit: windows, window_tokens: 100}\n",
    ],
)
def test_of_each_shard_the_documents_and_tokens_in_the_release_are_told(
    finished: Path, settings: str
) -> None:
    """By the manifest and sources.json, whether documents are whole or in pieces; they add up."""
    with finished.open("a", encoding="utf-8") as file:
        file.write(settings)
    project = open_project(load_settings(finished))
    for shard in SHARDS:
        pack_shard(project, shard)
    release = publish_release(project).artifact
    plain = {
        shard: {
            f"{split}_{what}": 0
            for split in ("train", "validation")
            for what in ("documents", "tokens")
        }
        for shard in SHARDS
    }
    seen = set()
    for line in pl.read_parquet(release.path("documents.parquet")).iter_rows(named=True):
        split = "train" if line["file"].startswith("train") else "validation"
        document = (line["shard"], line["row"])
        plain[line["shard"]][f"{split}_documents"] += document not in seen
        plain[line["shard"]][f"{split}_tokens"] += line["tokens"]
        seen.add(document)
    ledger = release.manifest.ledger
    assert ledger["by_shard"] == plain
    assert json.loads(release.path("sources.json").read_bytes())["shards"] == plain
    for name in ("train_documents", "train_tokens", "validation_documents", "validation_tokens"):
        assert sum(row[name] for row in plain.values()) == ledger[name]
    assert len(seen) == 241


def test_the_companion_names_what_the_crawls_came_from(project: Project, tmp_path: Path) -> None:
    draft = _draft(project, tmp_path / "x")
    _write(project, draft)
    whole = json.loads((draft / "sources.json").read_bytes())
    first = whole["crawls"]["2026-40"]
    sizes = [Path(m.location).stat().st_size for s in SHARDS[:2] for m in project.shard(s).members]
    assert whole["format"] == 1
    assert first["bytes"] == sum(sizes)
    assert (first["shards"], first["files"], first["licences"]) == (2, 2, [])
    assert first["location"] == "source/crawl=2026-40/*"
