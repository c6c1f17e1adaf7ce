"""Tests of reading export.json: what it must not say."""

import json

import pytest

from corpus_platform.errors import StorageError
from corpus_platform.stages.export_json import read_export

FILE = {"path": "train.bin", "bytes": 4, "sha256": "0" * 64, "split": "train", "tokens": 2}
SAID = {
    "version": 1,
    "format": "nanogpt",
    "release": {"id": "a", "content": "b"},
    "options": {"single_file": False},
    "files": [FILE],
    "dtype": "uint16",
    "vocab_size": 100,
    "eos_id": 0,
}


def _read(**changes: object) -> None:
    read_export(json.dumps({**SAID, **changes}).encode(), "export.json")


def test_what_an_export_says_is_taken() -> None:
    found = read_export(json.dumps(SAID).encode(), "export.json")
    assert (found.dtype, found.vocab_size, found.eos_id) == ("uint16", 100, 0)
    assert found.files["train.bin"].tokens == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 2}, "version 2, 1 is read"),
        ({"dtype": "x"}, "dtype 'x'"),
        ({"dtype": 5}, "dtype 5"),
        ({"vocab_size": "many"}, "vocab_size 'many'"),
        ({"eos_id": 100}, "eos_id 100, the vocabulary has 100 ids"),
        ({"eos_id": True}, "eos_id True"),
        ({"row_tokens": 0}, "row_tokens 0"),
        ({"row_tokens": "many"}, "row_tokens 'many'"),
        ({"files": [{**FILE, "documents": None}]}, "documents=None"),
        ({"files": [{**FILE, "bytes": "4"}]}, "bytes='4'"),
        ({"files": [{**FILE, "path": "../train.bin"}]}, "leads out of the folder"),
        ({"files": [{**FILE, "path": "/train.bin"}]}, "leads out of the folder"),
        ({"files": [{**FILE, "path": 5}]}, "path=5"),
        ({"files": 5}, "TypeError"),
    ],
)
def test_a_value_that_it_cannot_have_is_named(changes: dict[str, object], said: str) -> None:
    with pytest.raises(StorageError, match=said):
        _read(**changes)
