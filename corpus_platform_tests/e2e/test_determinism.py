"""The same corpus brought together in other ways: every product is the same to the byte."""

import shutil
from pathlib import Path

import pytest

from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.small import write_small_corpus

ONE_GLOB_PER_CRAWL = [
    {"glob": "source/crawl=2026-44/*", "crawl": "2026-44"},
    {"glob": "source/crawl=2026-40/*", "crawl": "2026-40"},
]


def elsewhere(folder: Path) -> Corpus:
    """Return the small corpus with files made in opposite order, and sources in opposite order."""
    write_small_corpus(folder / "written")
    corpus = Corpus(folder / "another/place of its own")
    corpus.folder.mkdir(parents=True)
    shutil.copy(folder / "written/corpus.yaml", corpus.config)
    for path in sorted(folder.glob("written/source/*/*"), reverse=True):
        target = corpus.folder / path.relative_to(folder / "written")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    corpus.set(sources=ONE_GLOB_PER_CRAWL)
    return corpus


@pytest.mark.slow
def test_two_workers_another_order_place_and_hash_seed_give_the_same_bytes(
    tmp_path: Path, undisturbed: Corpus
) -> None:
    corpus = elsewhere(tmp_path)
    corpus.set(run={"workers": 2})
    ended, _ = corpus.run(environment={"PYTHONHASHSEED": "1"})
    assert ended.code == 0, ended.printed
    assert corpus.products() == undisturbed.products()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_neither_workers_nor_hash_seed_change_a_byte(
    fresh: Corpus, undisturbed: Corpus, workers: int, seed: str
) -> None:
    fresh.set(run={"workers": workers})
    ended, _ = fresh.run(environment={"PYTHONHASHSEED": seed})
    assert ended.code == 0, ended.printed
    assert fresh.products() == undisturbed.products()


@pytest.mark.slow
def test_a_crawl_that_comes_later_gives_what_both_crawls_at_once_give(
    fresh: Corpus, undisturbed: Corpus
) -> None:
    # But for the tokenizer, which is trained once: the first crawl's documents are all its sample.
    later = fresh.folder / "source/crawl=2026-44"
    later.rename(fresh.folder / "later")
    ended, _ = fresh.run()
    assert ended.code == 0, ended.printed
    (fresh.folder / "later").rename(later)
    ended, _ = fresh.run()
    assert ended.code == 0, ended.printed
    now, at_once = fresh.products(), undisturbed.products()
    ingested = ("raw", "cleaned", "minhash")
    for name, value in at_once.items():
        if name.startswith(ingested) or name.endswith("clusters.parquet"):
            assert now[name] == value
