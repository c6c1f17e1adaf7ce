"""What a model gets of a window and of a row: inputs, labels, which count, and borders."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import UsageError
from corpus_platform.formats.token_bin import TokenBin
from corpus_platform.formats.token_rows import row
from corpus_platform.loader.batches import Batch
from corpus_platform.loader.opening import open_release
from corpus_platform.loader.release import Release
from corpus_platform_tests.loader.made import counted, release_of
from corpus_platform_tests.stages.releases import empty_project, write_rows

few = settings(deadline=None, max_examples=40)
# 0 ends a document, and the second one has a 0 in its middle too.
DOCUMENTS = [[5, 6, 0], [7, 0, 8, 0], [9, 0]]


def there(array: np.ndarray | None) -> np.ndarray:
    assert array is not None
    return array


def only(batches: Any) -> Batch:
    """Return the one batch that there is."""
    (batch,) = batches
    return batch


def test_labels_are_the_tokens_that_follow_up_to_the_last() -> None:
    batch = only(counted(9).sequential(4, 8))
    assert batch.x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert batch.y.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert batch.loss.all()
    assert batch.loss.shape == (2, 4)
    assert batch.tokens is batch.x


@pytest.mark.parametrize(
    ("dtype", "expected"), [(np.int64, "int64"), (np.int32, "int32"), (None, "uint16")]
)
def test_ids_come_in_the_type_that_is_asked_for(dtype: type | None, expected: str) -> None:
    batch = only(counted(9).sequential(4, 8, dtype=dtype))
    assert (batch.x.dtype.name, batch.y.dtype.name) == (expected, expected)
    assert batch.y.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


@pytest.mark.parametrize("dtype", [np.int16, np.uint8, np.float32])
def test_a_type_that_does_not_hold_all_ids_is_refused(dtype: type) -> None:
    with pytest.raises(UsageError, match="does not hold ids up to 65535"):
        counted(9).sequential(4, 8, dtype=dtype)


def masked(mask_boundary: Any, **more: Any) -> list[str]:
    """Return the labels of three windows of 2 and one of 2, a dot for each that counts not."""
    release = release_of(DOCUMENTS, **more)
    batch = only(release.sequential(8, 1, mask_boundary=mask_boundary))
    return [str(y) if ok else "." for y, ok in zip(batch.y[0], batch.loss[0], strict=True)]


def test_labels_at_borders_are_masked_by_the_index_and_not_by_the_id() -> None:
    assert masked(False) == ["6", "0", "7", "0", "8", "0", "9", "0"]
    assert masked("end") == ["6", ".", "7", "0", "8", ".", "9", "."]
    assert masked("begin") == ["6", "0", ".", "0", "8", "0", ".", "0"]
    assert masked(True) == ["6", ".", ".", "0", "8", ".", ".", "."]


def test_without_end_tokens_the_last_token_of_a_document_is_text() -> None:
    assert masked(True, eos_id=None) == masked("begin")
    assert masked("end", eos_id=None) == masked(False)


def test_a_border_at_the_end_of_a_window_masks_its_last_label() -> None:
    """Window [5 6] has the label 0, the end of the document; [6 0] has 7, the begin of the next."""
    batches = release_of(DOCUMENTS).sequential(2, 1, mask_boundary="end")
    assert next(iter(batches)).loss.tolist() == [[True, False]]
    shifted = release_of([[1, 5, 6, 0], [7, 0]]).sequential(2, 1, mask_boundary="begin")
    assert list(shifted)[1].loss.tolist() == [[True, False]]


def test_a_border_between_files_is_one_as_any_other() -> None:
    batches = release_of([[1, 2, 0]], [], [[3, 0]]).sequential(4, 1, mask_boundary=True)
    assert only(batches).loss.tolist() == [[True, False, False, False]]


def test_the_mask_of_the_files_is_that_of_the_labels() -> None:
    release = release_of([[1, 2, 3, 4, 0]], has_loss=True, masks=[[1, 0, 1, 1, 0]])
    batch = only(release.sequential(4, 1))
    assert batch.loss.tolist() == [[False, True, True, False]]
    assert batch.labels().tolist() == [[-100, 3, 4, -100]]
    assert only(release.sequential(4, 1, dtype=None)).labels().tolist() == [[-100, 3, 4, -100]]


def test_borders_keep_attention_inside_of_documents() -> None:
    release = release_of(DOCUMENTS)
    batch = only(release.sequential(4, 8, borders=True))
    assert batch.x.tolist() == [[5, 6, 0, 7], [0, 8, 0, 9]]
    assert (there(batch.cu_seqlens).tolist(), there(batch.cu_seqlens).dtype) == (
        [0, 3, 4, 7, 8],
        np.int32,
    )
    assert batch.max_seqlen == 3
    assert batch.position_ids().tolist() == [[0, 1, 2, 0], [0, 1, 2, 0]]
    assert release.document_borders(4, 4).tolist() == [0, 3, 4]
    assert release.document_borders(3, 4).tolist() == [0, 4]


def test_borders_that_were_not_asked_for_are_not_there() -> None:
    batch = only(release_of(DOCUMENTS).sequential(4, 8))
    with pytest.raises(UsageError, match="ask for borders=True"):
        batch.position_ids()


def test_a_batch_without_a_line_has_borders_too() -> None:
    batches = release_of(DOCUMENTS).windows(8, 1, seed=1, borders=True).shard(1, 2)
    batch = only(batches)
    assert (batch.x.shape, there(batch.cu_seqlens).tolist(), batch.max_seqlen) == ((0, 8), [0], 0)
    assert batch.position_ids().shape == (0, 8)


@few
@given(st.lists(st.lists(st.integers(1, 9), max_size=5), max_size=12), st.integers(1, 7))
def test_masks_are_those_of_looking_at_every_label(texts: list[list[int]], length: int) -> None:
    release = release_of([[*text, 0] for text in texts])
    place = [(i, len(text) + 1) for text in texts for i in range(len(text) + 1)]
    for batch in release.windows(length, 3, seed=1, mask_boundary=True):
        for start, line in zip(batch.places.tolist(), batch.loss.tolist(), strict=True):
            labels = place[start + 1 : start + 1 + length]
            assert line == [i != 0 and i != count - 1 for i, count in labels]


def test_rows_are_no_windows_and_windows_no_rows(rows: Release) -> None:
    with pytest.raises(UsageError, match=r"documents back to back, not rows"):
        counted(9).rows(1, 1)
    with pytest.raises(UsageError, match=r"rows of 4 tokens; take rows"):
        rows.windows(4, 1, 1)


# Rows: (document, offset, ids); the first file has a document of six in its second and third row.
ROWS = {
    "train-00000": [
        [(0, 0, [1, 2, 0]), (1, 0, [0])],
        [(2, 0, [3, 0, 4, 5])],
    ],
    "train-00001": [
        [(2, 4, [6, 0]), (3, 0, [0]), (-1, 0, [9])],
    ],
    "val-00000": [],
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release of three rows of 4 tokens in two files."""
    project = empty_project(tmp_path_factory.mktemp("rows"))
    name = write_rows(project, ROWS)
    return open_release(project.store.folder("shuffled_bins", None) / name, verify="sha256")


def test_a_batch_of_rows_has_all_that_a_model_needs(rows: Release) -> None:
    batch = only(rows.rows(8, None))
    assert batch.tokens.tolist() == [[1, 2, 0, 0], [3, 0, 4, 5], [6, 0, 0, 9]]
    assert batch.y.tolist() == [[2, 0, 0, 9], [0, 4, 5, 9], [0, 0, 9, 9]]
    assert there(batch.cu_seqlens).tolist() == [0, 3, 4, 8, 10, 11, 12]
    assert there(batch.cu_seqlens).dtype == np.int32
    assert batch.max_seqlen == 4
    assert there(batch.document).tolist() == [0, 1, 2, 2, 3, -1]
    assert batch.position_ids().tolist() == [[0, 1, 2, 0], [0, 1, 2, 3], [0, 1, 0, 0]]
    assert batch.position_ids(continued=True)[2].tolist() == [4, 5, 0, 0]
    # Neither the first token of a piece, nor padding, nor the label behind the row.
    assert batch.loss.astype(int).tolist() == [[1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]]


def test_the_first_token_of_a_piece_counts_where_that_is_wanted(rows: Release) -> None:
    batch = only(rows.rows(8, None, mask_boundary=False))
    assert batch.loss.astype(int).tolist() == [[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 0, 0]]


def test_rows_of_a_batch_are_the_rows_one_by_one(rows: Release) -> None:
    files = [rows.stream.part(number) for number in range(2)]
    every = [row(f, i) for f in files if isinstance(f, TokenBin) for i in range(f.header.rows)]
    seen = []
    for batch in rows.rows(1, seed=4):
        (number,) = batch.places.tolist()
        expected = every[number]
        assert batch.x[0].tolist() == expected.tokens.tolist()
        assert there(batch.cu_seqlens).tolist() == expected.cu_seqlens.tolist()
        assert there(batch.document).tolist() == expected.document.tolist()
        assert batch.position_ids()[0].tolist() == expected.position_ids().tolist()
        seen.append(number)
    assert sorted(seen) == [0, 1, 2]


def test_rows_are_gone_on_with(rows: Release) -> None:
    batches = rows.rows(2, seed=4)
    first = next(iter(batches))
    again = rows.rows(2, seed=4)
    again.load_state(batches.state())
    assert sorted([*first.places.tolist(), *only(again).places.tolist()]) == [0, 1, 2]
    with pytest.raises(UsageError, match="order"):
        rows.rows(2, None).load_state(batches.state())


def test_a_split_without_rows_gives_none(rows: Release) -> None:
    val = open_release(rows.folder, split="val")
    assert list(val.rows(2, seed=1)) == []


def test_windows_do_not_know_where_documents_begin() -> None:
    batch = only(release_of(DOCUMENTS).sequential(8, 1, borders=True))
    with pytest.raises(UsageError, match="windows do not know"):
        batch.position_ids(continued=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mask_boundary": "eos"}, "mask_boundary 'eos'"),
        ({"seq_len": 0}, "seq_len 0"),
        ({"jitter": True, "random_starts": True}, "one of them"),
    ],
)
def test_settings_that_mean_nothing_are_refused(options: dict[str, Any], words: str) -> None:
    whole: dict[str, Any] = {"seq_len": 2, "batch": 1, "seed": 1, **options}
    with pytest.raises(UsageError, match=words):
        counted(9).windows(**whole)


def test_the_path_of_a_release_is_in_what_it_is_called() -> None:
    assert counted(9).name == f"{Path('r1')} (train-00000)"
