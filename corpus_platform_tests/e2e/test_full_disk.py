"""A disk that is full: the run ends in words, and with space it completes to the same bytes."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.small import write_small_corpus

WORDS = ("No space left on device", "bytes are free on its disk")


def mount(folder: Path, size: str, *more: str) -> bool:
    """Mount a disk in memory of some size; tell whether that is allowed."""
    command = ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}", *more]), "tmpfs", folder]
    return os.geteuid() == 0 and subprocess.run(command, capture_output=True).returncode == 0


@pytest.fixture
def confined(tmp_path: Path) -> Iterator[Corpus]:
    """The small corpus with its data on a disk of its own."""
    write_small_corpus(tmp_path)
    corpus = Corpus(tmp_path)
    corpus.data.mkdir()
    if not mount(corpus.data, "100k"):
        pytest.skip("needs the right to mount a disk in memory")
    try:
        yield corpus
    finally:
        subprocess.run(["umount", corpus.data], check=True)


@pytest.mark.slow
def test_a_full_disk_ends_the_run_in_words_and_space_lets_it_complete(
    confined: Corpus, undisturbed: Corpus
) -> None:
    # From no room for the first file of Dagster's instance to room for nearly everything.
    for size in ("20k", "700k", "1200k", "1500k", "2000k", "2500k", "3000k"):
        assert mount(confined.data, size, "remount")
        ended, _ = confined.run()
        assert ended.code == 3, ended.printed
        assert "Traceback" not in ended.printed
        assert any(words in ended.printed for words in WORDS)
    assert mount(confined.data, "200m", "remount")
    ended, _ = confined.run()
    assert ended.code == 0, ended.printed
    assert confined.products() == undisturbed.products()
    assert confined.unwitnessed() == []
    assert confined.leftovers() == []
