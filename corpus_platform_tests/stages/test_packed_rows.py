"""A whole corpus in rows, with masks, begin tokens and cut documents, from shard to release."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tokenizers import Tokenizer

from corpus_platform.formats.token_bin import open_token_bin
from corpus_platform.formats.token_rows import row
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform.stages.packed_bins import pack_shard
from corpus_platform.stages.project import Project
from corpus_platform.stages.shuffled_bins import publish_release
from corpus_platform_tests.small import documents, run_chain, write_shard

SHARDS = ("2026-40/a.jsonl", "2026-40/b.jsonl")
PACK = "pack: {strategy: best_fit, sequence_length: 256, bos_token: <|im_start|>, max_document_tokens: 300}\n"
SETTINGS = """\
storage: data
sources: [{glob: "source/crawl={crawl}/*"}]
clean: {preset: none}
tokenizer: {vocab_size: 400, sample_bytes: 30000}
split: {validation: 0.1}
shuffle: {max_tokens_per_file: 4000}
checks: {max_uncleared_share: 0.5}
run: {workers: 1}
"""
ASKED = "Question: what does this page say?\n\n"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The settings file of a corpus of 36 documents; every third begins with a prompt."""
    folder = tmp_path_factory.mktemp("rows")
    records: list[dict] = []
    for number, record in enumerate(documents()[:36]):
        asked = number % 3 == 0
        text = (ASKED if asked else "") + record["text"][: 300 + 60 * number]
        more = {"no_loss_ranges": [[0, len(ASKED)]]} if asked else {}
        records.append({"id": f"d{number}", "text": text, "lang": "en", **more})
    records[35]["no_loss_ranges"] = [[9, 3], "x"]
    for shard, part in zip(SHARDS, (records[:30], records[30:]), strict=True):
        crawl, name = shard.split("/")
        write_shard(folder / "source" / f"crawl={crawl}" / name, part)
    config = folder / "corpus.yaml"
    config.write_text(SETTINGS + PACK)
    run_chain(open_project(load_settings(config)))
    return config


@pytest.fixture
def project(corpus: Path) -> Project:
    """That corpus; nobody changes it."""
    return open_project(load_settings(corpus))


def _texts(project: Project, shard: str) -> dict[int, tuple[str, str]]:
    cleaned = project.present("cleaned_documents", shard).path("documents.parquet")
    rows = pl.read_parquet(cleaned).select("row", "text", "meta").iter_rows()
    return {number: (text, meta) for number, text, meta in rows}


def _documents(
    project: Project, folder: Path, listed: pl.DataFrame
) -> dict[tuple[str, int], tuple]:
    """Return tokens and mask of each listed document, by numpy alone."""
    found: dict[tuple[str, int], tuple[list[int], list[int]]] = {}
    for file, start, tokens, shard, number in (
        listed.sort("shard", "row", "offset").select("file", "start", "tokens", "shard", "row").iter_rows()
    ):  # fmt: skip
        ids, mask = found.setdefault((shard, number), ([], []))
        ids += np.fromfile(folder / file, "<u2")[start : start + tokens].tolist()
        loss = np.fromfile((folder / file).with_suffix(".loss"), "u1")
        mask += loss[start : start + tokens].tolist()
    return found


def test_all_gates_pass_but_that_of_bad_ranges(project: Project) -> None:
    for shard in SHARDS:
        artifact = project.present("packed_bins", shard)
        failed = [f for f in project.findings_of("packed_bins", shard, artifact) if not f.passed]
        assert [f.gate for f in failed if f.gate != "utilisation"] == (
            ["no_loss_ranges"] if shard == SHARDS[1] else []
        )
        assert not any(f.blocks for f in failed)  # of so few documents a share only warns
        for finding in failed:
            if finding.gate == "no_loss_ranges":
                assert finding.reason.endswith(f"; in records {SHARDS[1]}:5 (2)")
    assert project.present("packed_bins", SHARDS[1]).numbers["bad_no_loss_ranges"] == 2


def test_masks_cut_documents_and_control_tokens_are_those_of_the_texts(project: Project) -> None:
    """Expected by the tokenizer itself, one document at a time, with its offsets."""
    artifact = project.present("packed_bins", SHARDS[0])
    tokenizer = Tokenizer.from_file(str(project.present("tokenizer", None).path("tokenizer.json")))
    bos, eos = (tokenizer.token_to_id(t) for t in ("<|im_start|>", "<|endoftext|>"))
    listed = pl.read_parquet(artifact.path("documents.parquet"))
    found = _documents(project, artifact.folder, listed)
    texts = _texts(project, SHARDS[0])
    cut = dict(listed.filter(pl.col("offset") == 0).select("row", "cut").iter_rows())
    assert len(found) > 25
    for (_, number), (ids, mask) in found.items():
        text, meta = texts[number]
        encoding = tokenizer.encode(text)
        kept = encoding.ids[:298]
        assert ids == [bos, *kept, eos]
        assert cut[number] == len(encoding.ids) - len(kept)
        end = len(ASKED) if "no_loss_ranges" in json.loads(meta) else 0
        of_text = [int(b > end) for _, b in encoding.offsets][:298]
        assert mask == [1, *of_text, of_text[-1]]


def test_the_ledger_of_tokens_adds_up(project: Project) -> None:
    artifact = project.present("packed_bins", SHARDS[0])
    ledger, sizes = artifact.manifest.ledger["tokens"], artifact.sizes()
    assert ledger["text"] + ledger["bos"] + ledger["eos"] == ledger["placed"] + ledger["cut"]
    assert (ledger["placed"] + ledger["padding"]) * 2 == sizes["train.bin"] + sizes["val.bin"]
    assert ledger["cut"] > 0


def test_the_release_holds_the_rows_with_their_masks_and_pieces(
    corpus: Path, tmp_path: Path
) -> None:
    shutil.copytree(corpus.parent, tmp_path / "c")
    config = tmp_path / "c" / "corpus.yaml"
    config.write_text(
        SETTINGS + PACK + "waivers: [{gate: no_loss_ranges, partition: 2026-40/b.jsonl, reason: a test, expires: 2099-01-01}]\n"
    )  # fmt: skip
    project = open_project(load_settings(config))
    folder = publish_release(project).artifact.folder
    listed = pl.read_parquet(folder / "documents.parquet")
    packed = {}
    for shard in SHARDS:
        artifact = project.present("packed_bins", shard)
        lines = pl.read_parquet(artifact.path("documents.parquet"))
        packed |= _documents(project, artifact.folder, lines)
    assert _documents(project, folder, listed) == packed
    assert listed["file"].n_unique() > 2
    one = row(open_token_bin(folder, "train-00001"), 0)
    lines = listed.filter((pl.col("file") == "train-00001.bin") & (pl.col("start") < 256))
    assert lines["tokens"].to_list() == one.lengths[one.document >= 0].tolist()
    assert lines["offset"].to_list() == one.offset[one.document >= 0].tolist()
    assert project.audit("shuffled_bins", None)["documents_differing"] == 0


def test_a_number_of_a_document_is_its_own_in_the_whole_release(corpus: Path) -> None:
    """Files are cut anywhere; pieces of one document keep its number in all of them."""
    folder = Path(open_project(load_settings(corpus)).store.folder("shuffled_bins", None))
    release = next(p for p in folder.iterdir() if p.is_dir())
    numbers: dict[int, set[tuple[str, int]]] = {}
    listed = pl.read_parquet(release / "documents.parquet")
    for name in sorted(listed["file"].unique().to_list()):
        if name.startswith("val"):
            continue
        pieces = open_token_bin(release, name.removesuffix(".bin")).pieces
        assert pieces is not None
        lines = listed.filter(pl.col("file") == name)
        real = pieces["document"][pieces["document"] >= 0].tolist()
        for number, whose in zip(real, lines.select("shard", "row").iter_rows(), strict=True):
            numbers.setdefault(number, set()).add(whose)
    assert all(len(whose) == 1 for whose in numbers.values())
    train = listed.filter(pl.col("file").str.starts_with("train"))
    assert len(numbers) == train.select("shard", "row").unique().height


def test_another_length_of_rows_makes_packs_due_and_one_of_a_stream_does_not(
    corpus: Path, tmp_path: Path
) -> None:
    def key(pack: str) -> str:
        config = tmp_path / "corpus.yaml"
        config.write_text(SETTINGS.replace("data", str(corpus.parent / "data")) + pack)
        project = open_project(load_settings(config), read_only=True)
        return project.expected("packed_bins", SHARDS[0]).key

    rows = [key(f"pack: {{strategy: pad, sequence_length: {n}}}\n") for n in (64, 128)]
    streams = [key(f"pack: {{sequence_length: {n}}}\n") for n in (64, 128)]
    assert len(set(rows)) == 2
    assert len(set(streams)) == 1


def test_a_second_call_does_nothing(project: Project) -> None:
    assert pack_shard(project, SHARDS[0]).made is False
