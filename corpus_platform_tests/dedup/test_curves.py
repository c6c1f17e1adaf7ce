import datasketch
import pytest

from corpus_platform.dedup.curves import (
    PRESETS,
    auto_banding,
    curve,
    datasketch_banding,
    half_point,
    rise,
)
from corpus_platform.dedup_settings import found_share


def test_the_curve_of_the_default_is_written_out() -> None:
    found = [(p.similarity, round(p.found, 3)) for p in curve(16, 8)]
    assert found == [  # by bc, from 1 - (1 - s^8)^16
        (0.5, 0.061),
        (0.55, 0.126),
        (0.6, 0.237),
        (0.65, 0.404),
        (0.7, 0.613),
        (0.75, 0.815),
        (0.8, 0.947),
        (0.85, 0.994),
        (0.9, 1.0),
        (0.95, 1.0),
    ]


@pytest.mark.parametrize(
    ("bands", "rows", "half", "steep"),
    [(16, 8, 0.674, 0.707), (32, 4, 0.383, 0.420), (8, 16, 0.856, 0.878), (1, 1, 0.5, 1.0)],
)
def test_half_of_the_pairs_are_found_a_little_below_the_rise(
    bands: int, rows: int, half: float, steep: float
) -> None:
    assert half_point(bands, rows) == pytest.approx(half, abs=5e-4)
    assert found_share(half_point(bands, rows), bands, rows) == pytest.approx(0.5)
    assert rise(bands, rows) == pytest.approx(steep, abs=5e-4)


def test_presets_are_made_of_128_values() -> None:
    assert PRESETS == ((16, 8), (32, 4), (8, 16))


@pytest.mark.parametrize(
    ("permutations", "threshold", "banding"),
    [(128, 0.8, (16, 8)), (128, 0.95, (8, 16)), (128, 0.7, (32, 4)), (128, 0.5, (64, 2))],
)
def test_auto_takes_the_fewest_bands_that_find_nine_in_ten(
    permutations: int, threshold: float, banding: tuple[int, int]
) -> None:
    assert auto_banding(permutations, threshold) == banding


@pytest.mark.parametrize(
    ("permutations", "threshold"), [(128, 0.5), (128, 0.7), (128, 0.8), (128, 0.9), (64, 0.8)]
)
def test_the_choice_of_datasketch_is_that_of_its_own_index(
    permutations: int, threshold: float
) -> None:
    index = datasketch.MinHashLSH(threshold=threshold, num_perm=permutations)
    assert datasketch_banding(permutations, threshold) == (index.b, index.r)
