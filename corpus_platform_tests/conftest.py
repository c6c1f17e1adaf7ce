"""Fixtures that every test may use."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real documents and broken shards; tests that need it skip without it."""
    beside = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("CORPUS_SHARED", beside))
    if not (folder / "corpus" / "shards.json").is_file():
        pytest.skip("needs the shared test corpus (set CORPUS_SHARED to its folder)")
    return folder
