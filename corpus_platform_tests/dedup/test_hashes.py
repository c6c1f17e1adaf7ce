import numpy as np

from corpus_platform.dedup.hashes import distinct, splitmix64


def test_a_step_gives_the_published_first_output_of_splitmix64() -> None:
    # seed 1234567 of the reference implementation (Rosetta Code, "Pseudo-random numbers/Splitmix64")
    assert splitmix64(np.array([1234567], np.uint64)).tolist() == [6457827717110365317]


def test_the_input_stays_as_it_is() -> None:
    values = np.array([1, 2], np.uint64)
    splitmix64(values)
    assert values.tolist() == [1, 2]


def test_distinct_values_are_ascending() -> None:
    assert distinct(np.array([3, 2**64 - 1, 3, 0, 3], np.uint64)).tolist() == [0, 3, 2**64 - 1]
    assert distinct(np.empty(0, np.uint64)).tolist() == []
    found = distinct(np.array([7, -1, 7], np.int64))
    assert (found.tolist(), found.dtype) == ([-1, 7], np.int64)
