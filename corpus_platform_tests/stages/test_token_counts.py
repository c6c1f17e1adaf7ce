"""Counts of tokens are those of the library on each text, and of the packed bins."""

import shutil
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import polars as pl
import pytest
import tokenizers

from corpus_platform.errors import SettingsError, StorageError, Uncleared, UsageError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages import fast_engine
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.project import Project
from corpus_platform.stages.token_counts import Count, count_tokens
from corpus_platform.stages.tokenizer import train_tokenizer
from corpus_platform.tokenization import exactness
from corpus_platform.tokenization.encoder import load_encoder
from corpus_platform_tests.small import SHARDS, register, write_shard
from corpus_platform_tests.stages.near_copies import add_shards, changed, cluster, new_corpus, prose
from corpus_platform_tests.tokenization.trained import trained

FIRST, SECOND, LATE = "2026-40/a.jsonl", "2026-44/b.jsonl", "2026-44/c.jsonl"


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a corpus: two decided shards, one that is only cleaned, one only registered."""
    folder = tmp_path_factory.mktemp("counts")
    texts = {
        "2026-40/a": [*(prose(i, 40) for i in range(12)), prose(90)],
        "2026-44/b": [changed(prose(90), 1), prose(50), prose(51)],
    }
    settings = "tokenizer: {vocab_size: 400, sample_bytes: 20000}\nsplit: {validation: 0.2}\n"
    project = new_corpus(folder, texts, settings)
    cluster(project)
    train_tokenizer(project)
    add_shards(folder, {"2026-44/c": [prose(70), "中文" * 200]})
    write_shard(folder / "source" / "2026-44" / "d.jsonl", [{"id": "x", "text": "not yet"}])
    register(open_project(load_settings(folder / "corpus.yaml")))
    return folder


@pytest.fixture
def project(once: Path) -> Project:
    return open_project(load_settings(once / "corpus.yaml"), read_only=True)


def expected(project: Project, tokenizer: tokenizers.Tokenizer) -> Counter[tuple[str, str, str]]:
    """Return tokens by shard, language and state, counted text by text."""
    tokenizer.encode_special_tokens = True
    found: Counter[tuple[str, str, str]] = Counter()
    for shard in (FIRST, SECOND, LATE):
        cleaned = project.present("cleaned_documents", shard).path("documents.parquet")
        splits: dict[int, str] = {}
        if (verdict := project.artifact("dedup_verdicts", shard)) is not None:
            kept = pl.read_parquet(verdict.path("verdict.parquet")).filter("kept")
            splits = dict(kept.select("row", "split").iter_rows())
        for row, lang, text in pl.read_parquet(cleaned).select("row", "lang", "text").iter_rows():
            tokens = len(tokenizer.encode(text, add_special_tokens=False).ids)
            found[shard, lang or "und", "cleaned"] += tokens
            if row in splits:
                found[shard, lang or "und", splits[row]] += tokens
    return found


def tokens_of(counts: tuple[Count, ...]) -> dict[tuple[str, str, str], int]:
    return {(c.shard, c.lang, c.state): c.tokens for c in counts}


def test_counts_are_those_of_the_library_text_by_text(project: Project) -> None:
    heard: list[tuple[int, int | None]] = []
    found = count_tokens(
        project, [*project.shards()], progress=lambda done, total: heard.append((done, total))
    )
    path = project.present("tokenizer", None).path("tokenizer.json")
    assert tokens_of(found.counts) == expected(project, tokenizers.Tokenizer.from_file(str(path)))
    assert {c.state for c in found.counts} == {"cleaned", "train", "validation"}
    by_state = Counter[str]()
    for count in found.counts:
        by_state[count.state] += count.documents
    assert by_state["cleaned"] == 18
    assert by_state["train"] + by_state["validation"] == 15  # a near-copy goes; two are undecided
    assert found.undecided == (LATE,)
    assert found.left_out == ("2026-44/d.jsonl",)
    assert len(heard) == 3
    assert heard[-1][0] == heard[-1][1]


def test_bytes_are_those_of_the_texts_in_utf_8(project: Project) -> None:
    found = count_tokens(project, [LATE])
    texts = [prose(70), "中文" * 200]
    assert sum(c.bytes for c in found.counts) == sum(len(text.encode()) for text in texts)


def test_another_tokenizer_is_counted_with_by_its_bytes(project: Project) -> None:
    data = trained()
    found = count_tokens(project, [FIRST], tokenizer=data)
    assert found.tokenizer == load_encoder(data, eos_token=None).fingerprint
    wanted = expected(project, tokenizers.Tokenizer.from_buffer(data))
    assert tokens_of(found.counts) == {k: v for k, v in wanted.items() if k[0] == FIRST}


def test_nothing_is_written(project: Project, once: Path) -> None:
    few = ((range(0x200), exactness.CONTEXTS),)
    before = {path: path.stat().st_mtime_ns for path in once.rglob("*")}
    with (
        mock.patch.multiple(exactness, CODE_POINTS=few, LONG=500),
        mock.patch.object(fast_engine, "WORTH_BYTES", 0),
    ):
        found = count_tokens(project, [FIRST, SECOND])
    engine = "fastokens" if find_spec("fastokens") else "tokenizers"
    assert found.engines == {engine: 2}
    assert {path: path.stat().st_mtime_ns for path in once.rglob("*")} == before


@pytest.mark.slow
def test_two_processes_count_what_one_does(project: Project) -> None:
    one = count_tokens(project, [*project.shards()])
    run = project.settings.run.model_copy(update={"workers": 2})
    project.settings = project.settings.model_copy(update={"run": run})
    assert count_tokens(project, [*project.shards()]) == one


def test_what_cannot_be_counted_is_told(project: Project, tmp_path: Path, once: Path) -> None:
    with pytest.raises(UsageError, match=r"no shard|2026-40/z"):
        count_tokens(project, ["2026-40/z.jsonl"])
    with pytest.raises(SettingsError, match=r"^mine\.json: cannot be read"):
        count_tokens(project, [FIRST], tokenizer=b'{"model": 1}', name="mine.json")
    shutil.copytree(once, tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "data" / "tokenizer")
    without = open_project(load_settings(tmp_path / "copy" / "corpus.yaml"))
    with pytest.raises(Uncleared, match="tokenizer: current: it is missing or stale"):
        count_tokens(without, [FIRST])


def test_packed_bins_have_one_more_token_for_each_document(finished: Path) -> None:
    project = open_project(load_settings(finished))
    counts = count_tokens(project, SHARDS).counts
    for shard in SHARDS:
        numbers = project.present("packed_bins", shard).numbers
        for split in ("train", "validation"):
            own = [c for c in counts if (c.shard, c.state) == (shard, split)]
            assert numbers[f"{split}_tokens"] == sum(c.tokens + c.documents for c in own)


def test_tables_that_are_damaged_are_told(once: Path, tmp_path: Path) -> None:
    shutil.copytree(once, tmp_path / "copy")
    project = open_project(load_settings(tmp_path / "copy" / "corpus.yaml"))
    for asset, name in (
        ("dedup_verdicts", "verdict.parquet"),
        ("cleaned_documents", "documents.parquet"),
    ):
        path = project.present(asset, FIRST).path(name)
        data = path.read_bytes()
        zeros = data[:4] + bytes(len(data) - 8) + data[-4:]
        without_a_column = data.replace(b"kept", b"left").replace(b"text", b"next")
        for damaged in (zeros, without_a_column):
            path.write_bytes(damaged)
            with pytest.raises(
                StorageError, match=f"(?s)a table of {FIRST} cannot be read: .*corpus verify"
            ):
                count_tokens(project, [FIRST])
