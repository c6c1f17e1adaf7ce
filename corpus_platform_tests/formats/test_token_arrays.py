from pathlib import Path

import numpy as np
import pytest

from corpus_platform.errors import StorageError
from corpus_platform.formats.token_arrays import first_fall, map_array

U2 = np.dtype("<u2")


def test_a_part_of_a_file_is_mapped_wherever_it_begins(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"\7\1\0\2\0\3\0")
    assert map_array(path, U2, offset=1).tolist() == [1, 2, 3]
    assert map_array(path, U2, offset=1, count=2).tolist() == [1, 2]
    assert map_array(path, U2, offset=7).tolist() == []


def test_a_map_is_a_plain_array_that_nobody_writes_to(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"\1\0")
    mapped = map_array(tmp_path / "a", U2)
    assert type(mapped) is np.ndarray
    assert not mapped.flags.writeable


@pytest.mark.parametrize(
    ("offset", "count", "said"),
    [
        (0, None, "7 bytes, which are not whole values of uint16 from byte 0"),
        (0, 4, "7 bytes, which are not 4 values of uint16 from byte 0"),
        (8, None, "7 bytes, which are not whole values of uint16 from byte 8"),
        (8, 0, "7 bytes, which are not 0 values of uint16 from byte 8"),
    ],
)
def test_more_than_there_is_raises(
    tmp_path: Path, offset: int, count: int | None, said: str
) -> None:
    (tmp_path / "a").write_bytes(bytes(7))
    with pytest.raises(StorageError, match=said):
        map_array(tmp_path / "a", U2, offset=offset, count=count)


def test_a_missing_file_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="a: cannot be read"):
        map_array(tmp_path / "a", U2)


@pytest.mark.parametrize(
    ("ends", "fall"),
    [([], None), ([0, 0, 2, 2], None), ([1, 3, 2], 2), ([1, 0, 2], 1), ([-1, 2], 0)],
)
@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_the_first_end_before_the_one_before_it_is_found(
    ends: list[int], fall: int | None, block: int
) -> None:
    assert first_fall(np.array(ends, np.int64), block=block) == fall
