"""The report of near-copies: the figures are there, and text of a crawl stays text."""

import base64
import re
from xml.etree import ElementTree

import pytest

from corpus_platform.reports.dedup import plotted_numbers, sections
from corpus_platform_tests.reports.written import CURVE, HOSTILE, counts, member, report


def test_documents_and_bytes_stand_before_and_after() -> None:
    assert sections(report(), CURVE)["before_and_after"] == (
        "|  | before | after | left |\n"
        "| --- | --- | --- | --- |\n"
        "| documents | 1,200 | 1,000 | 83.3% |\n"
        "| bytes of text | 5,000,000 | 4,000,000 | 80.0% |\n"
        "\n"
        "150 exact copies and 50 near-copies were dropped. 4,321 pairs were compared, 77 of them"
        " are near-copies; 5 buckets were larger than the cap."
    )


def test_crawls_stand_in_their_order_and_sources_by_their_copies() -> None:
    found = sections(report(), CURVE)
    assert found["copies_per_crawl"].splitlines()[2:] == [
        "| 2026-40 | 800 | 20 | 10 | 770 (96.2%) | 98.8% |",
        "| 2026-44 | 400 | 130 | 40 | 230 (57.5%) | 97.5% |",
    ]
    assert found["copies_per_source"].splitlines()[2:] == [
        "| forum/de | 300 | 100 | 10 | 190 (63.3%) | 98.3% |",
        "| news | 900 | 50 | 40 | 810 (90.0%) | 98.3% |",
    ]


def test_the_histogram_counts_clusters_and_their_documents_by_size() -> None:
    rows = sections(report(), CURVE)["cluster_sizes"].splitlines()[4:]
    assert rows == [
        "| 1 | 900 | 900 |",
        "| 2 | 60 | 120 |",
        "| 3 | 10 | 30 |",
        "| 4 | 0 | 0 |",
        "| 5-9 | 0 | 0 |",
        "| 10-19 | 0 | 0 |",
        "| 20-49 | 2 | 50 |",
        "| 50-99 | 0 | 0 |",
        "| 100-999 | 1 | 100 |",
        "| 1000+ | 0 | 0 |",
    ]


def test_the_largest_clusters_say_how_they_begin() -> None:
    line = "| 100 | 12 | 1 | 2026-40/a.jsonl:3 | In the beginning |"
    assert sections(report(), CURVE)["largest_clusters"].splitlines()[2:] == [line]


def test_the_curve_stands_with_its_half_point_and_the_choices_beside_it() -> None:
    found = sections(report(), CURVE)["s_curve"]
    assert "| 0.50 | 0.061 |\n| 0.80 | 0.947 |" in found
    assert found.endswith(
        "Half of the pairs are found at 0.674; the curve rises at 0.707. At the threshold 0.8,"
        " `auto` takes 16 x 8, datasketch's own optimum is 9 x 13."
    )


def test_pairs_stand_by_language_the_least_similar_first() -> None:
    lines = sections(report(), CURVE)["pairs"].splitlines()
    assert lines[0] == "**en**"
    assert lines[4:6] == [
        "| 0.8125 | 2026-40/a.jsonl:9 | Then came | 2026-40/a.jsonl:2 | In the beginning |",
        "| 0.9500 | 2026-40/a.jsonl:7 | In the beginning | 2026-40/a.jsonl:1 | In the beginning |",
    ]
    assert lines[7] == "**ru**"
    assert "**hi**" not in lines


def _cells(line: str) -> int:
    return re.sub(r"\\.", "", line).count("|") - 1


@pytest.mark.parametrize("text", HOSTILE, ids=lambda t: repr(t[:12]))
def test_whatever_a_first_line_holds_it_is_a_cell_and_no_markup(text: str) -> None:
    said = report()
    said["largest"] = [{**member(3, text), "id": text, "shard": text, "size": 2, "texts": 2, "kept": 1}]  # fmt: skip
    said["pairs"] = {text or "-": [{"similarity": 0.9, "kept": member(1, text), "dropped": member(2, text)}]}  # fmt: skip
    said["sources"] = {text: counts(9, 1, 1, 9)}
    said["crawls"] = {text: counts(9, 1, 1, 9)}
    found = sections(said, CURVE)
    for name, columns in (("largest_clusters", 5), ("copies_per_source", 6), ("copies_per_crawl", 6)):  # fmt: skip
        assert [_cells(line) for line in found[name].splitlines()] == [columns] * 3
    heading, blank, *lines = found["pairs"].splitlines()
    assert (heading[:2], heading[-2:], blank) == ("**", "**", "")
    assert [_cells(line) for line in lines] == [5] * 3
    shown = "".join(found[n] for n in ("largest_clusters", "copies_per_source", "pairs"))
    assert not re.search(r"<|(?<!\\)[`\[\]!]|[\u202e\u2066\x00\x1b\r]", shown)
    assert len(shown.encode()) < 10_000


def test_a_section_stays_within_its_size_and_counts_what_it_leaves_out() -> None:
    said = report()
    said["sources"] = {f"{i:03}" + "日" * 90: counts(10, 1, 0, 10) for i in range(500)}
    pair = {"similarity": 0.9, "kept": member(1, "語" * 200), "dropped": member(2, "|" * 200)}
    said["pairs"] = {f"l{i}": [pair] * 50 for i in range(40)}  # ty: ignore
    found = sections(said, CURVE)
    assert max(len(text.encode()) for text in found.values()) < 30_000
    shown = found["copies_per_source"].count("\n| ") - 1
    assert found["copies_per_source"].endswith(f"\n\n{500 - shown} more are not shown")
    assert shown >= 10
    assert found["pairs"].endswith("28 more languages")


def test_a_corpus_without_copies_or_documents_has_a_report() -> None:
    said = report()
    said["documents"] = {"before": 0, "after": 0, "exact_copies": 0, "near_copies": 0}
    said["bytes"] = {"before": 0, "after": 0}
    said.update(cluster_sizes=[], crawls={}, sources={}, largest=[], pairs={})
    found = sections(said, CURVE)
    assert (found["largest_clusters"], found["pairs"]) == ("none", "no near-copies")
    assert plotted_numbers(said)["text_bytes_kept_share"] == 1.0


def test_numbers_that_plot_have_stable_names() -> None:
    assert plotted_numbers(report()) == {
        "text_bytes_before": 5_000_000,
        "text_bytes_after": 4_000_000,
        "text_bytes_kept_share": 0.8,
        "copy_share/2026-40": pytest.approx(30 / 800),
        "copy_share/2026-44": pytest.approx(170 / 400),
    }


@pytest.mark.parametrize("section", ["cluster_sizes", "s_curve"])
def test_charts_are_images_of_sound_svg(section: str) -> None:
    found = re.match(
        r"!\[[\w ]+\]\(data:image/svg\+xml;base64,(\S+)\)", sections(report(), CURVE)[section]
    )
    assert found is not None
    svg = ElementTree.fromstring(base64.b64decode(found[1]))
    kinds = {e.tag.rpartition("}")[2] for e in svg.iter()}
    assert kinds <= {"svg", "rect", "text", "line", "polyline"}
