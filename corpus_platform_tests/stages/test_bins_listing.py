"""The table of documents of a pack against ledger, cleaned documents, and names of languages."""

import copy
from pathlib import Path
from typing import Any  # a ledger is JSON

import polars as pl
import pytest

from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.stages.bins_listing import (
    documents_differing,
    language_numbers,
    ledger_difference,
)

POLICY = Policy(400, "5e" * 32, eos_id=0)
# Three documents of 9, 9 and 4 tokens; the first was cut by 5. The third is held out.
DOCUMENTS = pl.DataFrame(
    {
        "shard": ["c/s"] * 3,
        "row": [0, 2, 3],
        "file": ["train.bin", "train.bin", "val.bin"],
        "offset": [0, 0, 0],
        "tokens": [9, 9, 4],
        "cut": [5, 0, 0],
        "id": ["a", "b", "c"],
        "lang": ["en", None, "de"],
    }
)
LEDGER = {
    "tokens": {"text": 24, "bos": 0, "eos": 3, "placed": 22, "cut": 5, "padding": 2},
    "train_documents": 2,
    "train_tokens": 18,
    "validation_documents": 1,
    "validation_tokens": 4,
    "bad_no_loss_ranges": 0,
}
FOUND = {
    "padding_tokens": 2,
    "train_tokens": 18,
    "validation_tokens": 4,
    "bad_no_loss_ranges": 0,
}


def difference(ledger: dict, limit: int | None = 9, documents: pl.DataFrame = DOCUMENTS) -> int:
    return ledger_difference(ledger, documents, policy=POLICY, limit=limit, found=FOUND)


def test_a_ledger_that_is_right_differs_in_nothing() -> None:
    assert difference(LEDGER) == 0


@pytest.mark.parametrize(
    ("path", "by"),
    [
        (("tokens", "text"), 1),
        (("tokens", "eos"), 2),  # and the sum
        (("tokens", "bos"), 2),
        (("tokens", "placed"), 1),
        (("tokens", "cut"), 1),
        (("tokens", "padding"), 1),
        (("train_documents",), 1),
        (("train_tokens",), 1),
        (("validation_documents",), 1),
        (("validation_tokens",), 1),
        (("bad_no_loss_ranges",), 1),
    ],
    ids=lambda value: "/".join(value) if isinstance(value, tuple) else "",
)
def test_one_more_anywhere_in_a_ledger_is_told(path: tuple[str, ...], by: int) -> None:
    ledger: dict[str, Any] = copy.deepcopy(LEDGER)
    counts = ledger["tokens"] if path[0] == "tokens" else ledger
    counts[path[-1]] += 1
    assert difference(ledger) == by


def test_tokens_that_are_cut_where_there_was_room_are_not_accounted_for() -> None:
    assert difference(LEDGER, limit=None) == 5
    assert difference(LEDGER, limit=12) == 3  # of 14 tokens 12 may stay, and 9 did
    assert difference(LEDGER, limit=8) == 2  # two documents have one token too many


def cleaned(folder: Path, **changes: list) -> Path:
    columns = {"row": [0, 1, 2, 3], "id": ["a", "x", "b", "c"], "lang": ["en", "fr", None, "de"]}
    pl.DataFrame(columns | changes).write_parquet(folder / "cleaned.parquet")
    return folder / "cleaned.parquet"


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({}, 0),
        ({"id": ["b", "x", "a", "c"]}, 2),
        ({"lang": ["en", "fr", "fr", "de"]}, 1),
        ({"lang": ["en", "fr", None, None]}, 1),
    ],
)
def test_documents_stand_under_the_id_and_language_of_the_cleaned_ones(
    changes: dict[str, list], count: int, tmp_path: Path
) -> None:
    kept = {"row": [0, 1, 2, 3], "kept": [True, False, True, True]}
    splits = ["train", None, "train", "validation"]
    pl.DataFrame({**kept, "split": splits}).write_parquet(tmp_path / "verdict.parquet")
    found = documents_differing(
        "c/s",
        DOCUMENTS,
        verdict=tmp_path / "verdict.parquet",
        cleaned=cleaned(tmp_path, **changes),
    )
    assert found == count


def test_a_language_called_others_is_one_like_the_others() -> None:
    names = ["others", *(f"l{i:02}" for i in range(60))]
    documents = pl.DataFrame({"lang": names, "tokens": [1000] + [2] * 60})
    found = dict(language_numbers(documents))
    assert found["tokens/lang/others"] == 1000
    assert found["tokens/other_languages"] == 11 * 2  # 49 of two tokens have a name
    assert (len(found), sum(found.values())) == (51, 1120)


def test_a_long_or_empty_name_is_no_language_and_null_is_undetermined() -> None:
    documents = pl.DataFrame(
        {"lang": ["x" * 65, "", None, "und", "y" * 64], "tokens": [1, 2, 4, 8, 16]}
    )
    assert dict(language_numbers(documents)) == {
        "tokens/lang/" + "y" * 64: 16,
        "tokens/lang/und": 12,
        "tokens/other_languages": 3,
    }
