"""Tests of what the UI is told of an artifact: names of numbers are data and never change."""

from corpus_platform.defs.reporting import numbers_metadata


def test_shares_come_first_and_each_drop_is_a_rate_and_a_count() -> None:
    numbers = {
        "lines": 210,
        "documents": 200,
        "kept": 150,
        "quarantined": 10,
        "dropped/too_short": 40,
        "dropped/low_alnum": 10,
    }
    assert list(numbers_metadata(numbers).items()) == [
        ("kept_share", 0.75),
        ("quarantined_share", 10 / 210),
        ("drop_rate/too_short", 0.2),
        ("drop_rate/low_alnum", 0.05),
        *numbers.items(),
    ]


def test_copies_are_shares_of_the_documents() -> None:
    shown = numbers_metadata({"documents": 8, "exact_copies": 2, "near_copies": 1})
    assert (shown["exact_copy_share"], shown["near_copy_share"]) == (0.25, 0.125)


def test_nothing_is_divided_by_no_documents() -> None:
    numbers = {"documents": 0, "lines": 0, "kept": 0, "quarantined": 0, "dropped/too_short": 0}
    assert numbers_metadata(numbers) == numbers


def test_there_are_at_most_200_numbers_and_the_first_ones_stay() -> None:
    numbers = {"documents": 9.0, **{f"language/{i}/kept": float(i) for i in range(300)}}
    shown = numbers_metadata(numbers)
    assert (len(shown), shown["documents"]) == (200, 9.0)
