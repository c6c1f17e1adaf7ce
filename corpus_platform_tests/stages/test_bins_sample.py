"""Packed documents against the cleaned texts: what decodes, what was cut, masks, ranges that are none."""

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from corpus_platform.document import CLEANED
from corpus_platform.formats.token_bin import open_token_bin
from corpus_platform.stages.bins_listing import whole_documents
from corpus_platform.stages.bins_sample import measure_sample
from corpus_platform.stages.bins_writing import Batch, Packing, write_bins
from corpus_platform.stages.packed_bins import policy_of
from corpus_platform.stages.tables import TableWriter
from corpus_platform.tokenization.documents import encode_documents
from corpus_platform_tests.stages.test_bins_audit import rewrite
from corpus_platform_tests.tokenization.trained import cat_encoder

TEXTS = ["the cat sat on the mat", "a cat", "mat the mat the mat the mat"]
METAS = ["{}", '{"no_loss_ranges":[[0,2]]}', '{"no_loss_ranges":[[3,1],7]}']
CLEAN = {
    "undecodable": 0,
    "mask_faults": 0,
    "bad_no_loss_ranges": 2,
    "bad_no_loss_ranges/c/s:5": 2,
}


def packed(folder: Path, *, limit: int | None = None) -> pl.DataFrame:
    """Write texts and bins into a folder; return the lines of the documents."""
    columns = {
        "id": ["a", "b", "c"],
        "url": [None] * 3,
        "text": TEXTS,
        "lang": ["en"] * 3,
        "lang_score": [None] * 3,
        "meta": METAS,
        "row": [0, 4, 5],
    }
    table = pa.table(columns, schema=CLEANED)
    with TableWriter(folder / "texts.parquet", CLEANED) as writer:
        writer.write(table)
        writer.close()
    encoder = cat_encoder()
    batch = Batch(np.array([0, 4, 5]), np.zeros(3, np.bool_), table.to_batches()[0])
    listed = write_bins(
        folder,
        "c/s",
        [batch],
        encode=lambda _: encode_documents(encoder, encoder, TEXTS, METAS),
        policy=policy_of(encoder),
        packing=Packing("concat", None, limit),
    )
    return whole_documents(pl.DataFrame(listed), row_tokens=None)[0]


def measured(folder: Path, lines: pl.DataFrame) -> dict[str, int]:
    encoder = cat_encoder()
    texts, policy = folder / "texts.parquet", policy_of(encoder)
    return measure_sample(folder, texts, lines, encoder, policy, shard="c/s")


@pytest.mark.parametrize("limit", [None, 4])
def test_what_was_written_is_that_of_the_texts(limit: int | None, tmp_path: Path) -> None:
    assert measured(tmp_path, packed(tmp_path, limit=limit)) == CLEAN


def test_another_id_in_a_whole_document_and_in_a_cut_one(tmp_path: Path) -> None:
    lines = packed(tmp_path, limit=4)
    assert (lines["cut"] > 0).to_list() == [True, False, True]
    bin_ = open_token_bin(tmp_path, "train")
    tokens = np.array(bin_.tokens)
    tokens[[1, 5]] += 1  # of the first and the second document
    rewrite(bin_, tmp_path, {"bin": tokens})
    assert measured(tmp_path, lines) == {**CLEAN, "undecodable": 2}


def test_more_or_fewer_tokens_listed_as_cut_than_the_text_has_left(tmp_path: Path) -> None:
    lines = packed(tmp_path, limit=4)
    for by in (-1, 1):
        listed = lines.with_columns(cut=pl.when(pl.col("row") == 5).then(pl.col("cut") + by).otherwise("cut"))  # fmt: skip
        assert measured(tmp_path, listed) == {**CLEAN, "undecodable": 1}


def test_a_mask_that_says_otherwise_and_one_where_the_text_names_none(tmp_path: Path) -> None:
    lines = packed(tmp_path)
    bin_ = open_token_bin(tmp_path, "train")
    assert bin_.loss is not None
    loss = np.array(bin_.loss)
    masked = int(np.flatnonzero(loss == 0)[0])
    loss[masked], loss[0] = 1, 0
    rewrite(bin_, tmp_path, {"loss": loss})
    assert measured(tmp_path, lines) == {**CLEAN, "mask_faults": 2}


def test_ranges_of_documents_that_are_not_packed_do_not_count(tmp_path: Path) -> None:
    lines = packed(tmp_path).filter(pl.col("row") != 5)
    found = measured(tmp_path, lines)
    assert {name: n for name, n in found.items() if "ranges" in name} == {"bad_no_loss_ranges": 0}
