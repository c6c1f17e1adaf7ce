"""Kernels are compiled with a place to keep them, or refused with the way out."""

from unittest import mock

import numba
import pytest

from corpus_platform.errors import StageFailed
from corpus_platform.text.compiling import kernel


def test_without_a_folder_for_compiled_code_the_way_out_is_named() -> None:
    nowhere = RuntimeError("cannot cache function 'f': no locator available for file 'f.py'")
    with (
        mock.patch.object(numba, "njit", side_effect=nowhere),
        pytest.raises(StageFailed, match=r"no folder .* written .* let NUMBA_CACHE_DIR name one"),
    ):
        kernel(len)
