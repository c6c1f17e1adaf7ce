"""Tests of the numbers that the UI plots: their names are data and never change."""

import pytest

from corpus_platform.defs.numbers import shown_numbers


def test_shares_come_first_and_each_drop_is_a_rate_and_a_count() -> None:
    numbers = {
        "lines": 210,
        "documents": 200,
        "kept": 150,
        "quarantined": 10,
        "dropped/too_short": 40,
        "dropped/low_alnum": 10,
    }
    assert list(shown_numbers(numbers).items()) == [
        ("kept_share", 0.75),
        ("quarantined_share", 10 / 210),
        ("drop_rate/too_short", 0.2),
        ("drop_rate/low_alnum", 0.05),
        *numbers.items(),
    ]


def test_copies_are_shares_of_the_documents() -> None:
    shown = shown_numbers({"documents": 8, "exact_copies": 2, "near_copies": 1})
    assert shown == {
        "copy_share": 0.375,
        "exact_copy_share": 0.25,
        "near_copy_share": 0.125,
        "documents": 8,
        "exact_copies": 2,
        "near_copies": 1,
        "copies": 3,
    }


def test_tokens_are_summed_and_shared_out_and_fill_windows() -> None:
    numbers = {
        "train_documents": 9,
        "validation_documents": 1,
        "train_tokens": 900,
        "validation_tokens": 100,
    }
    shown = shown_numbers(numbers, sequence_length=400)
    assert shown == {
        "validation_token_share": 0.1,
        "tokens_per_document": 100.0,
        "sequences": 3,
        "utilisation": 0.75,
        **numbers,
        "tokens": 1000,
        "documents": 10,
    }


def test_streams_make_sequences_and_rows_are_some_already() -> None:
    """A pack names all strategies, and says with 1 which is in force."""
    tokens = {"train_tokens": 900, "padding_tokens": 0, "strategy/pad": 0.0}
    concat = tokens | {"strategy/concat": 1.0, "strategy/best_fit": 0.0}
    rows = tokens | {"strategy/concat": 0.0, "strategy/best_fit": 1.0}
    assert shown_numbers(concat, sequence_length=400)["sequences"] == 3
    assert "sequences" not in shown_numbers(rows, sequence_length=400)


def test_speeds_are_per_second_of_the_stage() -> None:
    numbers = {"documents": 50, "train_tokens": 300, "validation_tokens": 100}
    shown = shown_numbers(numbers, seconds=2.0, bytes_in=3_000_000)
    assert shown["documents_per_second"] == 25.0
    assert shown["tokens_per_second"] == 200.0
    assert shown["mb_per_second"] == 1.5


def test_megabytes_are_those_of_the_text_where_it_was_packed() -> None:
    shown = shown_numbers({"decompressed_bytes": 8_000_000}, seconds=4.0, bytes_in=1_000_000)
    assert shown["mb_per_second"] == 2.0


def test_no_speed_is_made_up_where_no_time_was_measured() -> None:
    shown = shown_numbers({"documents": 5}, seconds=0.0, bytes_in=7)
    assert shown == {"documents": 5}


def test_nothing_is_divided_by_no_documents_and_no_tokens() -> None:
    numbers = {
        "documents": 0,
        "lines": 0,
        "kept": 0,
        "quarantined": 0,
        "dropped/too_short": 0,
        "train_tokens": 0,
        "validation_tokens": 0,
    }
    assert shown_numbers(numbers, seconds=1.0, sequence_length=8) == {**numbers, "tokens": 0}


def test_a_number_that_was_measured_is_not_summed_anew() -> None:
    shown = shown_numbers({"documents": 7, "train_documents": 3, "validation_documents": 3})
    assert shown["documents"] == 7


def test_there_are_at_most_200_numbers_and_the_first_ones_stay() -> None:
    numbers = {"documents": 9.0, **{f"language/{i}/kept": float(i) for i in range(300)}}
    shown = shown_numbers(numbers)
    assert (len(shown), shown["documents"]) == (200, 9.0)


@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_every_value_is_a_number_that_plots(seconds: float) -> None:
    numbers = {"documents": 3, "kept": 2, "train_tokens": 5, "validation_tokens": 0}
    shown = shown_numbers(numbers, seconds=seconds, bytes_in=9, sequence_length=2)
    assert {type(value) for value in shown.values()} <= {int, float}


def test_records_that_are_named_are_not_plotted() -> None:
    numbers = {"bad_no_loss_ranges": 2.0, "bad_no_loss_ranges/2026-40/b.jsonl:35": 2.0}
    numbers["rare_token/31999"] = 4.0
    assert shown_numbers(numbers) == {"bad_no_loss_ranges": 2.0}
