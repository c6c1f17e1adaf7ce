"""What the source documents state of near-copies, held against the code: figures, and three fixtures.

Document 1, 3.4 and 3.5: two sentences that differ in two characters, a third one, the Jaccard of
windows of five characters, estimates, and 21 probabilities. Document 4 names what a hash of the text
misses: other footers, other licence headers, other tracking parameters.
"""

import math
import re

import numpy as np
import pytest

from corpus_platform.dedup.curves import rise
from corpus_platform.dedup.minhash import estimate
from corpus_platform.dedup.shingles import shingle_hashes
from corpus_platform.dedup.signing import Signer
from corpus_platform.dedup.verification import jaccard
from corpus_platform.dedup_settings import DedupSettings, found_share
from corpus_platform.text.folding import fold
from corpus_platform_tests.dedup.chain import deduplicate

A = "机器学习模型的训练过程需要大量的高质量语料数据来支撑最终的效果表现"
B = "机器学习模型的训练过程需要大量的高品质语料数据来支撑最终的效果表现"
C = "今天天气不错适合出门散步顺便去公园里看看新开的那些花草树木"
AB = 23 / 35  # 0.6571

SCHEMES = ("fast", "datasketch")


def windows(text: str, width: int) -> set[str]:
    return {text[i : i + width] for i in range(len(text) - width + 1)}


def ours(a: str, b: str, *, kind: str, width: int = 5) -> float:
    return jaccard(*(shingle_hashes(fold(t), kind=kind, width=width) for t in (a, b)))  # ty: ignore


def _settings(scheme: str, permutations: int, bands: int) -> DedupSettings:
    return DedupSettings(
        shingle="char",
        scheme=scheme,  # ty: ignore
        permutations=permutations,
        bands=bands,
        rows=permutations // bands,
    )


@pytest.mark.parametrize(
    ("similarity", "strict", "default", "loose"),  # (8, 16), (16, 8), (32, 4)
    [
        (0.30, 0.000, 0.001, 0.229),
        (0.50, 0.000, 0.061, 0.873),
        (0.60, 0.002, 0.237, 0.988),
        (0.70, 0.026, 0.613, 1.000),
        (0.80, 0.204, 0.947, 1.000),
        (0.90, 0.806, 1.000, 1.000),
        (0.95, 0.990, 1.000, 1.000),
    ],
)
def test_the_table_of_21_probabilities(
    similarity: float, strict: float, default: float, loose: float
) -> None:
    found = [found_share(similarity, b, r) for b, r in ((8, 16), (16, 8), (32, 4))]
    assert [round(p, 3) for p in found] == [strict, default, loose]


def test_where_the_three_curves_rise() -> None:
    assert [round(rise(b, r), 3) for b, r in ((8, 16), (16, 8), (32, 4))] == [0.878, 0.707, 0.42]


@pytest.mark.parametrize(("width", "similarity"), [(3, 0.7714), (4, 0.7143), (5, 0.6571), (6, 0.6)])
def test_the_jaccard_of_the_sentences(width: int, similarity: float) -> None:
    plain = len(windows(A, width) & windows(B, width)) / len(windows(A, width) | windows(B, width))
    assert round(plain, 4) == similarity
    assert ours(A, B, kind="char", width=width) == plain
    assert ours(A, C, kind="char", width=width) == 0.0


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("permutations", [16, 64, 128, 256])
def test_estimates_of_the_sentences_are_within_theory(permutations: int, scheme: str) -> None:
    a, b, c = Signer(_settings(scheme, permutations, permutations // 4)).sign([A, B, C]).signatures
    error = math.sqrt(AB * (1 - AB) / permutations)
    assert abs(float(estimate(a, b)) - AB) < 4 * error
    assert float(estimate(a, c)) == 0.0


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_default_bands_find_the_pair_of_sentences_less_than_half_of_the_time(
    scheme: str,
) -> None:
    chance = found_share(AB, 16, 8)
    assert round(chance, 2) == 0.43
    dedup, met = _settings(scheme, 128, 16), 0
    for seed in range(1, 401):
        a, b = Signer(dedup, seed=seed).sign([A, B]).bands
        met += bool(np.any(a == b))
    assert abs(met / 400 - chance) < 4 * math.sqrt(chance * (1 - chance) / 400)


# Document 4: one article, three footers; one source file, other licence headers; one post, other
# tracking parameters. Cleaning changes no text, and folding neither strips a footer nor an address.

ARTICLE = """
The lighthouse on the northern cape was built in the summer of 1887, after two ships had gone down on
the rocks within a single winter. Stones were cut in a quarry eleven miles inland and carried to the
shore on sledges, since no road led there yet. The keeper lived with his family in three small rooms
below the lamp, and once a month a boat brought flour, oil and letters. In his first report he noted
every vessel that passed, the direction of the wind, and how often the glass had to be cleaned of
salt. His daughter later wrote that the sound of the sea was so constant that silence, on the few
still days of June, woke everyone in the house. When the lamp was changed to electricity, the work of
four people became the work of one, and the rooms were let to painters who came for the light. Today
the tower belongs to the county. Visitors may climb the ninety steps on Saturdays, and from the
gallery they see the same rocks, the same line of foam, and on clear evenings the lamps of the
fishing boats that still follow the old course around the cape. A small museum in the oil store shows
the first lens, the books of the keepers and a model of the boat that carried their supplies. The
county is looking for somebody to mend the clock, which stopped in the storm of 1953 and has shown ten
past four ever since that night.
"""
FOOTERS = (
    "Share this page with your friends. All rights reserved by the northern gazette.",
    "Read more stories about the coast in our weekly letter, sent every Friday morning.",
    "Cookies help us to run this site. By reading on you agree to our terms.",
)

CODE = """
def read_intervals(path):
    \"\"\"Return the intervals of a file, one pair of numbers a line, sorted by their start.\"\"\"
    intervals = []
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            start, separator, end = line.partition("-")
            if not separator:
                raise ValueError(f"{path}, line {number}: no dash between two numbers")
            intervals.append((int(start), int(end)))
    return sorted(intervals)


def merge_intervals(intervals):
    \"\"\"Join intervals that touch or overlap; the input is sorted.\"\"\"
    merged = []
    for start, end in intervals:
        if merged and start <= merged[-1][1] + 1:
            previous_start, previous_end = merged[-1]
            merged[-1] = (previous_start, max(previous_end, end))
        else:
            merged.append((start, end))
    return merged


def covered_length(intervals):
    \"\"\"Count the whole numbers that lie in at least one interval.\"\"\"
    return sum(end - start + 1 for start, end in merge_intervals(intervals))


def gaps_between(intervals, low, high):
    \"\"\"Yield the stretches from low to high that no interval covers, in their order.\"\"\"
    position = low
    for start, end in merge_intervals(intervals):
        if start > high:
            break
        if start > position:
            yield position, min(start - 1, high)
        position = max(position, end + 1)
    if position <= high:
        yield position, high
"""
SHORT_HEADERS = (
    "# Copyright 2019 Ada Example. Use and copy freely, at your own risk.\n",
    "# SPDX-License-Identifier: Example-2.0, see the file LICENSE of this repository.\n",
    "# This file is in the public domain where the law knows such a thing.\n",
)
LONG_HEADER = "# " + " ".join(
    f"clause {i}: the licensee shall keep paragraph {i}." for i in range(24)
)

POST = "\n".join(
    f"{text} https://shop.example/{place}?utm_source=SOURCE&utm_id=NUMBER"
    for text, place in zip(
        re.split(r"(?<=\.) ", " ".join(ARTICLE.split()))[:9],
        ["cape", "lamp", "boat", "glass", "sea", "tower", "steps", "lens", "clock"],
        strict=True,
    )
)


def _kept(texts: list[str]) -> list[bool]:
    return deduplicate(texts, banding=(32, 4)).decisions.kept.tolist()


def test_one_article_with_three_footers_is_kept_once() -> None:
    pages = [f"{ARTICLE}\n{footer}" for footer in FOOTERS]
    similar = [round(ours(pages[0], other, kind="auto"), 2) for other in pages[1:]]
    assert similar == [0.9, 0.9]
    assert _kept(pages) == [True, False, False]


def test_a_short_article_is_outweighed_by_its_footers_and_stays() -> None:
    short = " ".join(ARTICLE.split()[:60])
    pages = [f"{short}\n{footer}" for footer in FOOTERS]
    assert round(ours(pages[0], pages[1], kind="auto"), 2) == 0.67
    assert _kept(pages) == [True, True, True]


def test_one_source_file_with_three_licence_lines_is_kept_once() -> None:
    files = [header + CODE for header in SHORT_HEADERS]
    assert [round(ours(files[0], f, kind="auto"), 2) for f in files[1:]] == [0.88, 0.88]
    assert _kept(files) == [True, False, False]


def test_a_licence_as_long_as_the_code_makes_another_file_of_it() -> None:
    files = [SHORT_HEADERS[0] + CODE, LONG_HEADER + CODE]
    assert round(ours(*files, kind="auto"), 2) == 0.51
    assert _kept(files) == [True, True]


def test_one_post_with_other_tracking_parameters_is_kept_once_where_links_are_few() -> None:
    few = re.sub(r"\?utm\S*", "", POST, count=6)  # three links of nine keep theirs
    posts = [few.replace("SOURCE", s).replace("NUMBER", n) for s, n in (("mail", "17"), ("feed", "99"))]  # fmt: skip
    assert round(ours(*posts, kind="auto"), 2) == 0.88
    assert _kept(posts) == [True, False]


def test_a_post_whose_every_line_is_tracked_stays_by_words_and_goes_by_characters() -> None:
    posts = [POST.replace("SOURCE", s).replace("NUMBER", n) for s, n in (("mail", "17"), ("feed", "99"))]  # fmt: skip
    assert round(ours(*posts, kind="auto"), 2) == 0.67
    assert _kept(posts) == [True, True]
    assert round(ours(*posts, kind="char"), 2) == 0.94
    found = deduplicate(posts, kind="char", banding=(32, 4))
    assert found.decisions.kept.tolist() == [True, False]


def test_a_notice_with_another_number_stays_by_words_and_goes_by_characters() -> None:
    notice = (
        "This page has been moved. Please update your bookmarks and links. You will be taken to"
        " article number {} of the archive in a few seconds; if nothing happens, press the button"
        " below. Thank you for reading our magazine, and for your patience while we move."
    )
    pages = [notice.format(number) for number in (40193, 77251, 85606)]
    assert round(ours(pages[0], pages[1], kind="auto"), 2) == 0.79
    assert _kept(pages) == [True, True, True]
    assert round(ours(pages[0], pages[1], kind="char"), 2) == 0.93
    found = deduplicate(pages, kind="char", banding=(32, 4))
    assert found.decisions.kept.tolist() == [True, False, False]
