"""Documents are cut to a number of tokens, with their masks, and nothing is lost unsaid."""

import numpy as np
import pytest

from corpus_platform.packing.truncation import truncate

FLAT, ENDS = np.array([1, 2, 3, 4, 5, 6], np.uint32), np.array([3, 3, 4, 6])
LOSS = np.array([True, False, True, False, True, False])


@pytest.mark.parametrize(
    ("limit", "flat", "ends", "cut"),
    [
        (None, [1, 2, 3, 4, 5, 6], [3, 3, 4, 6], [0, 0, 0, 0]),
        (3, [1, 2, 3, 4, 5, 6], [3, 3, 4, 6], [0, 0, 0, 0]),
        (2, [1, 2, 4, 5, 6], [2, 2, 3, 5], [1, 0, 0, 0]),
        (1, [1, 4, 5], [1, 1, 2, 3], [2, 0, 0, 1]),
    ],
)
def test_each_document_keeps_its_first_tokens(
    limit: int | None, flat: list[int], ends: list[int], cut: list[int]
) -> None:
    found = truncate(FLAT, ENDS, LOSS, limit=limit)
    assert found.loss is not None
    assert (found.flat.tolist(), found.ends.tolist(), found.cut.tolist()) == (flat, ends, cut)
    assert found.loss.tolist() == [LOSS[token - 1] for token in flat]


def test_no_documents_and_no_mask_stay_so() -> None:
    found = truncate(np.zeros(0, np.uint32), np.zeros(0, np.int64), None, limit=1)
    assert (len(found.flat), len(found.ends), found.loss, len(found.cut)) == (0, 0, None, 0)
