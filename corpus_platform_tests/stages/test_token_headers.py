"""Tests of the fields of headers, format by format."""

from pathlib import Path

import numpy as np
import pytest

from corpus_platform.formats.datatrove import DatatroveWriter
from corpus_platform.formats.hdf5 import Hdf5Writer
from corpus_platform.formats.llmc import LlmcWriter
from corpus_platform.formats.nanogpt import NanogptWriter
from corpus_platform.formats.token_file import open_tokens
from corpus_platform.stages.token_headers import header_fields

IDS, ENDS = np.array([5, 6, 0], np.uint16), np.array([3])


def test_each_header_says_what_stands_in_it(tmp_path: Path) -> None:
    with LlmcWriter(tmp_path / "l.bin", vocab_size=9) as writer:
        writer.append(IDS, ENDS)
    with DatatroveWriter(tmp_path / "d.ds", vocab_size=9, tokenizer="t") as writer:
        writer.append(IDS, ENDS)
    with NanogptWriter(tmp_path / "n.bin", vocab_size=9) as writer:
        writer.append(IDS, ENDS)
    found = {p: header_fields(open_tokens(tmp_path / p)) for p in ("l.bin", "d.ds", "n.bin")}
    assert found == {
        "l.bin": {"magic": 20240520, "version": 1, "tokens": 3},
        "d.ds": {"metadata": ["t|2", "3", "3.00 T"]},
        "n.bin": {},
    }


def test_attributes_of_hdf5_are_plain_values(tmp_path: Path) -> None:
    pytest.importorskip("h5py")
    with Hdf5Writer(
        tmp_path / "h.h5", vocab_size=9, eos_id=0, tokenizer_sha256="a" * 64, chunk_tokens=8
    ) as writer:
        writer.append(IDS, ENDS)
    found = header_fields(open_tokens(tmp_path / "h.h5"))
    assert found["format"] == "corpus-token-hdf5"
    assert (found["token_count"], found["eos_id"], found["chunk_tokens"]) == (3, 0, 8)
    assert {type(value) for value in found.values()} == {str, int}
