"""The report of packing: every figure worked out by hand, and text of a crawl stays text."""

import base64
import re
from xml.etree import ElementTree

import pytest

from corpus_platform.reports.packing import (
    plotted_numbers,
    release_sections,
    sections,
    utilisation_table,
)
from corpus_platform_tests.reports.written import HOSTILE

# 6, 3, 4, 7 and 25 tokens in train, 5 in validation; rows of 10; 30 tokens cut off the 25.
LENGTHS = [(3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (25, 1)]
NUMBERS: dict[str, float] = {
    "sequence_length": 10.0,
    "strategy/best_fit": 1.0,
    "train_tokens": 45.0,
    "validation_tokens": 5.0,
    "train_documents": 5.0,
    "validation_documents": 1.0,
    "tokens/lang/en": 38.0,
    "tokens/lang/zh": 12.0,
    "tokens_cut": 30.0,
    "truncated_documents": 1.0,
    "padding_tokens": 10.0,
    "loss_masked_tokens": 5.0,
    "eos_count": 6.0,
    **{f"rows/{s}": n for s, n in (("concat", 6.0), ("best_fit", 6.0), ("pad", 8.0))},
    **{f"padding/{s}": n for s, n in (("concat", 10.0), ("best_fit", 10.0), ("pad", 30.0))},
    **{f"utilisation/{s}": n for s, n in (("concat", 5 / 6), ("best_fit", 5 / 6), ("pad", 0.625))},
    **{f"cut_documents/{s}": n for s, n in (("concat", 2.0), ("best_fit", 1.0), ("pad", 1.0))},
    **{f"needless_cuts/{s}": n for s, n in (("concat", 1.0), ("best_fit", 0.0), ("pad", 0.0))},
}


def test_tokens_stand_by_split_and_by_language() -> None:
    assert sections(NUMBERS, LENGTHS)["tokens"] == (
        "| split | documents | tokens | of all | tokens a document |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| train | 5 | 45 | 90.0% | 9.0 |\n"
        "| validation | 1 | 5 | 10.0% | 5.0 |\n"
        "| both | 6 | 50 | 100.0% | 8.3 |\n"
        "\n"
        "| language | tokens | of all |\n"
        "| --- | --- | --- |\n"
        "| en | 38 | 76.0% |\n"
        "| zh | 12 | 24.0% |"
    )


def test_strategies_stand_beside_the_one_in_force() -> None:
    assert utilisation_table(NUMBERS) == [
        ["strategy", "rows", "used", "padding", "cut", "cut needlessly"],
        ["concat", "6", "83.333%", "10", "2 (33.3%)", "1 (16.7%)"],
        ["best_fit (in force)", "6", "83.333%", "10", "1 (16.7%)", "0 (0.0%)"],
        ["pad", "8", "62.500%", "30", "1 (16.7%)", "0 (0.0%)"],
    ]
    shown = sections(NUMBERS, LENGTHS)["utilisation"]
    assert (
        "| best\\_fit \\(in force\\) | 6 | 83.333% | 10 | 1 \\(16.7%\\) | 0 \\(0.0%\\) |" in shown
    )
    assert "Rows of 10 tokens, both splits together" in shown


def test_the_ledger_goes_from_what_came_in_to_what_lies_there() -> None:
    assert sections(NUMBERS, LENGTHS)["token_ledger"].splitlines()[2:] == [
        "| tokens in | 80 | 100.00% |",
        "| = placed | 50 | 62.50% |",
        "| + cut off 1 long documents | 30 | 37.50% |",
        "| positions of the files | 60 | 100.00% |",
        "| = tokens | 50 | 83.33% |",
        "| + padding | 10 | 16.67% |",
        "| tokens whose loss does not count | 5 | 10.00% |",
        "",
        "Cut when they are read, the files would hold 30 tokens more (60.0%), to be kept, moved,"
        " hashed, and skipped in every epoch.",
    ]


def test_without_a_cut_nothing_is_said_of_one() -> None:
    uncut = sections({**NUMBERS, "tokens_cut": 0.0}, LENGTHS)["token_ledger"]
    assert "epoch" not in uncut


def _bars(section: str) -> list[str]:
    """Return the labels and values that a chart shows."""
    found = re.match(r"!\[[\w ,%]+\]\(data:image/svg\+xml;base64,(\S+)\)", section)
    assert found is not None
    svg = ElementTree.fromstring(base64.b64decode(found[1]))
    return [e.text or "" for e in svg.iter() if e.tag.endswith("text")][1:]


def test_lengths_stand_as_powers_of_two_and_as_quantiles() -> None:
    shown = sections(NUMBERS, LENGTHS)["document_lengths"]
    assert _bars(shown) == ["2", "17", "4", "67", "8", "0", "16", "17"]
    assert shown.partition("\n\n")[2] == (
        "| least | 1% | 10% | 25% | 50% | 75% | 90% | 99% | most |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| 3 | 3 | 3 | 4 | 5 | 7 | 25 | 25 | 25 |\n"
        "\n"
        "6 documents of 8.3 tokens on average. A bar begins at its label and ends before the next.\n"
        "\n"
        "1 (16.7%) are longer than a row of 10 tokens."
    )


def test_lengths_from_nothing_to_beyond_32_bits_fit_into_a_chart() -> None:
    shown = sections(NUMBERS, [(0, 1), (1, 1), (1024, 1), (2**40, 1)])["document_lengths"]
    bars = _bars(shown)
    assert bars[:4] == ["0", "25", "1", "25"]
    assert bars[2 * 11 : 2 * 11 + 2] == ["1Ki", "25"]
    assert bars[-2:] == ["4Mi", "25"]  # the last bar takes all that are longer
    assert len(bars) == 48


@pytest.mark.parametrize(
    ("eos", "said"),
    [
        (6.0, "Each document ends in one end token."),
        (0.0, "Documents carry no end token."),
        (8.0, "There are 2 more end tokens than documents."),
        (5.0, "There are 1 fewer end tokens than documents."),
    ],
)
def test_end_tokens_are_held_against_documents(eos: float, said: str) -> None:
    shown = sections({**NUMBERS, "eos_count": eos}, LENGTHS)["eos_density"]
    assert shown.splitlines()[2:4] == [
        f"| end tokens | {eos:.0f} | {20 * eos:.4f} |",
        "| documents (1 / mean length) | 6 | 120.0000 |",
    ]
    assert shown.endswith(f"\n\n{said}")


def test_numbers_that_plot_have_stable_names() -> None:
    assert plotted_numbers(NUMBERS, LENGTHS) == {
        "padding_share": pytest.approx(10 / 60),
        "median_document_tokens": 5,
        "utilisation": pytest.approx(5 / 6),
        "eos_density": pytest.approx(6 / 50),
    }


def test_a_release_of_rows_is_as_full_as_its_padding_says() -> None:
    numbers = {n: v for n, v in NUMBERS.items() if "/" not in n}
    assert plotted_numbers(numbers, LENGTHS)["utilisation"] == pytest.approx(50 / 60)


def test_the_largest_shards_of_a_release_stand_alone_and_the_others_in_one_line() -> None:
    shards = [(f"c/{i:02}", 2, 100 + i) for i in range(52)]
    shown = release_sections(NUMBERS, LENGTHS, shards)["tokens_per_shard"].splitlines()
    assert len(shown) == 2 + 51
    assert shown[2] == "| c/51 | 2 | 151 | 2.3% | 75.5 |"
    assert shown[-2:] == ["| c/02 | 2 | 102 | 1.6% | 51.0 |", "| 2 more shards | 4 | 201 | 3.1% | 50.2 |"]  # fmt: skip


def test_the_largest_languages_stand_alone_and_the_others_in_one_line() -> None:
    numbers = {n: v for n, v in NUMBERS.items() if not n.startswith("tokens/lang/")}
    numbers |= {f"tokens/lang/l{i:02}": 100.0 - i for i in range(26)}
    shown = sections(numbers, LENGTHS)["tokens"].splitlines()
    assert shown[-2:] == ["| l23 | 77 | 3.4% |", "| 2 more | 151 | 6.6% |"]


def test_languages_that_were_not_counted_one_by_one_stand_with_the_others() -> None:
    numbers = {**NUMBERS, "tokens/other_languages": 50.0}
    shown = sections(numbers, LENGTHS)["tokens"].splitlines()
    assert shown[-3:] == ["| en | 38 | 38.0% |", "| zh | 12 | 12.0% |", "| all others | 50 | 50.0% |"]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: repr(t[:12]))
def test_names_of_shards_and_languages_are_cells_and_no_markup(text: str) -> None:
    numbers = {**NUMBERS, f"tokens/lang/{text}": 1.0}
    found = release_sections(numbers, LENGTHS, [(text, 1, 1)])
    shown = found["tokens_per_shard"] + found["tokens"]
    counted = [
        re.sub(r"\\.", "", line).count("|") for line in found["tokens_per_shard"].splitlines()
    ]
    assert counted == [6] * 3
    assert not re.search(r"<|(?<!\\)[`\[\]!]|[\u202e\u2066\x00\x1b\r]", shown)
    assert len(shown.encode()) < 3_000


def test_a_pack_and_a_release_without_documents_have_a_report() -> None:
    numbers = dict.fromkeys(NUMBERS, 0.0) | {"sequence_length": 10.0}
    found = sections(numbers, [])
    assert (found["document_lengths"], found["eos_density"]) == ("no documents", "no tokens")
    assert "| both | 0 | 0 | 0.0% | - |" in found["tokens"]
    assert plotted_numbers(numbers, []) == {"padding_share": 0.0}
    assert release_sections(numbers, [], [])["tokens_per_shard"].count("\n") == 1


def test_end_tokens_that_nobody_counted_are_not_made_up() -> None:
    numbers = {n: v for n, v in NUMBERS.items() if n != "eos_count"}
    assert sections(numbers, LENGTHS)["eos_density"].endswith("End tokens were not counted.")
    assert "eos_density" not in plotted_numbers(numbers, LENGTHS)
