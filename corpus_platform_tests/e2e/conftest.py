"""A small corpus, made once by the real command, of which each test takes a copy."""

from pathlib import Path

import pytest

from corpus_platform_tests.e2e.command import Corpus
from corpus_platform_tests.once import made_once
from corpus_platform_tests.small import write_small_corpus


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The small corpus after one undisturbed run; nobody changes it."""

    def make(folder: Path) -> None:
        write_small_corpus(folder)
        ended, _ = Corpus(folder).run(environment={"PYTHONHASHSEED": "0"})
        assert ended.code == 0, ended.printed

    return Corpus(made_once(tmp_path_factory.getbasetemp(), "undisturbed", make))


@pytest.fixture
def made(undisturbed: Corpus, tmp_path: Path) -> Corpus:
    """A copy of the small corpus with all that was made of it."""
    return undisturbed.copy(tmp_path / "made")


@pytest.fixture
def fresh(tmp_path: Path) -> Corpus:
    """The small corpus with nothing made of it."""
    write_small_corpus(tmp_path / "fresh")
    return Corpus(tmp_path / "fresh")
