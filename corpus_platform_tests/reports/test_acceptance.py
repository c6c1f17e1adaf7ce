"""Tests of the acceptance list: each question has its pass, its warning and its failure."""

import dataclasses

import pytest

from corpus_platform.reports.acceptance import Compression, Decoded, Figures, acceptance

SOUND = Figures(
    tokens=1_010_000,
    cut=0,
    estimated_tokens=1_000_000.0,
    token_bytes=2,
    validation_wanted=True,
    train_documents=999,
    train_tokens=999_000,
    validation_documents=1,
    decoded=[Decoded("train-00000.bin", 7, "plain words", 0.0)] * 10,
    round_trip_texts=230,
    round_trip_failures=0,
    ends=True,
    sample_tokens=999_000,
    sample_eos=999,
    cleaned_from=2000,
    dropped={"too_short": 400, "low_alnum": 0},
    before_documents=1600,
    before_bytes=8_000_000,
    after_documents=1000,
    after_bytes=5_000_000,
    compression={
        "en": Compression(900, 800_000, 3_200_000, 3_208_000),
        "zh": Compression(99, 190_000, 285_000, 855_000),
    },
    in_both=0,
)


def _status(**changes: object) -> dict[int, str]:
    """Return the lines that do not pass."""
    checked = acceptance(dataclasses.replace(SOUND, **changes))
    assert len(checked) == 9
    return {i: c.status for i, c in enumerate(checked, start=1) if c.status != "pass"}


def test_a_sound_release_passes_all_nine() -> None:
    assert _status() == {}
    assert [c.figure for c in acceptance(SOUND)] == [
        "1,010,000 tokens of 2 bytes; 1,000,000 were estimated (+1.0%)",
        "10 of 10 read well",
        "0 of 230 texts change",
        "999 end tokens: one in 1,000.0; a document has 1,000.0 on average",
        "the most, 20.0% of 2,000 documents, by too_short",
        "1,600 documents of 8,000,000 bytes before, 1,000 of 5,000,000 after",
        "zh 1.50 characters and 4.50 bytes a token; en 4.00 characters and 4.01 bytes a token",
        "0 of 1 validation documents are listed in train",
        "this one is small itself: 5,000,000 bytes of text",
    ]


ODD = Decoded("train-00000.bin", 7, "\ufffd\ufffda", 0.6)
GOOD = SOUND.decoded[0]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"estimated_tokens": 1_060_000.0}, {}),
        ({"estimated_tokens": 1_100_000.0}, {1: "warn"}),
        ({"estimated_tokens": 3_000_000.0}, {1: "fail"}),
        ({"tokens": 510_000, "cut": 500_000}, {}),
        ({"validation_documents": 0}, {1: "warn"}),
        ({"validation_documents": 0, "validation_wanted": False}, {}),
        ({"decoded": [GOOD] * 9 + [ODD]}, {2: "warn"}),
        ({"decoded": [GOOD] * 4 + [ODD] * 6}, {2: "fail"}),
        ({"decoded": []}, {2: "fail"}),
        ({"round_trip_failures": 1}, {3: "fail"}),
        ({"round_trip_texts": 0}, {3: "fail"}),
        ({"sample_eos": 930}, {}),
        ({"sample_eos": 800}, {4: "warn"}),
        ({"sample_eos": 0}, {4: "fail"}),
        ({"sample_eos": 1999}, {4: "fail"}),
        ({"ends": False, "sample_eos": 0}, {4: "warn"}),
        ({"dropped": {"too_short": 700}}, {5: "warn"}),
        ({"dropped": {"too_short": 1100}}, {5: "fail"}),
        ({"dropped": {"too_short": 50}, "cleaned_from": 60}, {5: "warn"}),
        ({"dropped": {}}, {5: "warn"}),
        ({"after_documents": 0}, {6: "fail"}),
        ({"compression": {"en": SOUND.compression["en"]}}, {7: "warn"}),
        ({"compression": {**SOUND.compression, "zh": Compression(9, 90, 30, 90)}}, {7: "warn"}),
        ({"in_both": 1}, {8: "fail"}),
        ({"after_bytes": 1_000_000_001}, {9: "warn"}),
    ],
)
def test_each_question_has_its_own_answer(changes: dict, found: dict[int, str]) -> None:
    assert _status(**changes) == found


def test_a_release_of_nothing_fails_where_there_is_nothing() -> None:
    nothing = {
        "tokens": 0,
        "estimated_tokens": 0.0,
        "train_documents": 0,
        "train_tokens": 0,
        "validation_documents": 0,
        "decoded": [],
        "sample_tokens": 0,
        "sample_eos": 0,
        "cleaned_from": 0,
        "dropped": {"too_short": 0},
        "after_documents": 0,
        "compression": {},
    }
    assert _status(**nothing) == {1: "fail", 2: "fail", 4: "fail", 6: "fail", 7: "warn"}


def test_what_is_missing_is_named() -> None:
    checked = acceptance(dataclasses.replace(SOUND, compression={}))
    assert checked[6].figure == (
        "zh has no documents in the sample; en has no documents in the sample"
    )
