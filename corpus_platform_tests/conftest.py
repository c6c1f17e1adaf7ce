"""Fixtures that every test may use."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project
from corpus_platform_tests.once import made_once
from corpus_platform_tests.s3_server import S3Server, s3_server, set_keys
from corpus_platform_tests.small import run_chain, write_small_corpus


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real documents and broken shards; tests that need it skip without it."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("CORPUS_SHARED", beside))
    if not (folder / "corpus" / "shards.json").is_file():
        pytest.skip("needs the shared test corpus (set CORPUS_SHARED to its folder)")
    return folder


@pytest.fixture(scope="session")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a small corpus of which everything is made; nobody changes it."""

    def make(folder: Path) -> None:
        run_chain(open_project(load_settings(write_small_corpus(folder))))

    return made_once(tmp_path_factory.getbasetemp(), "finished", make)


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Path:
    """The settings file of a copy of that corpus."""
    shutil.copytree(finished_once, tmp_path / "finished")
    return tmp_path / "finished" / "corpus.yaml"


@pytest.fixture(scope="session")
def weed() -> Iterator[S3Server]:
    """A real S3 server, which takes 4 s to start; those that use it are in the xdist group `s3`."""
    with s3_server() as server:
        yield server


@pytest.fixture
def s3_keys() -> Iterator[None]:
    """The keys that the server knows, in the environment, and no others."""
    with mock.patch.dict(os.environ):
        set_keys(os.environ)
        yield
