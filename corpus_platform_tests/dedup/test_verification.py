import gzip
import json
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup.minhash import MinHasher
from corpus_platform.dedup.shingles import shingle_hashes
from corpus_platform.dedup.verification import agreements, compare_sets, jaccard, least_matches
from corpus_platform.errors import UsageError
from corpus_platform.text.folding import fold
from corpus_platform.text.units import UnitKind, split_units

SETS = st.sets(st.integers(0, 30), max_size=20)

# The three sentences of the source document, section 3.4: A ~ B is 0.6571, A ~ C is 0.
A = "机器学习模型的训练过程需要大量的高质量语料数据来支撑最终的效果表现"
B = "机器学习模型的训练过程需要大量的高品质语料数据来支撑最终的效果表现"
C = "今天天气不错适合出门散步顺便去公园里看看新开的那些花草树木"


def array(values: set[int]) -> np.ndarray:
    return np.array(sorted(values), np.uint64)


def text_jaccard(a: str, b: str, kind: UnitKind = "auto") -> float:
    first, second = (shingle_hashes(fold(text), kind=kind, width=5) for text in (a, b))
    return jaccard(first, second)


@given(SETS, SETS)
@settings(deadline=None, max_examples=200)
def test_jaccard_equals_that_of_python_sets(a: set[int], b: set[int]) -> None:
    expected = len(a & b) / len(a | b) if a | b else 0.0
    assert jaccard(array(a), array(b)) == expected


@pytest.mark.parametrize("kind", ["auto", "char"])
def test_the_sentences_of_the_source_document_have_its_similarities(kind: UnitKind) -> None:
    assert round(text_jaccard(A, B, kind), 4) == 0.6571
    assert text_jaccard(A, C, kind) == 0.0


def test_dd_04_template_pages_differ_by_their_facts() -> None:
    facts = [(101, "Alder", 1951), (102, "Birch", 1962), (103, "Cedar", 1973), (104, "Alder", 1951)]
    pages = [
        f"County Road {n} is a rural highway maintained by the {c} office and opened to traffic in {y}."
        for n, c, y in facts
    ]
    for a in range(4):
        for b in range(a + 1, 4):
            expected = 11 / 17 if (a, b) == (0, 3) else 5 / 23
            assert text_jaccard(pages[a], pages[b]) == expected
    assert text_jaccard(pages[0], pages[3], "char") == 87 / 97


def test_cc_01_neighbours_of_a_chain_are_similar_and_its_ends_are_not() -> None:
    a, b, c = (" ".join(f"w{i:03d}" for i in range(s, s + 100)) for s in (0, 8, 16))
    assert (text_jaccard(a, b), text_jaccard(b, c), text_jaccard(a, c)) == (
        88 / 104,
        88 / 104,
        80 / 112,
    )


# --- many sets


def compared(sets: list[set[int]], pairs: list[tuple[int, int]]) -> list[float]:
    ends = np.cumsum([len(one) for one in sets])
    starts = ends - [len(one) for one in sets]
    flat = np.concatenate([*map(array, sets), np.empty(0, np.uint64)])
    return compare_sets(flat, starts, ends, np.array(pairs, np.int64).reshape(-1, 2)).tolist()


@given(st.lists(SETS, min_size=1, max_size=6))
@settings(deadline=None, max_examples=150)
def test_compared_sets_have_the_jaccard_of_python_sets(sets: list[set[int]]) -> None:
    pairs = [(a, b) for a in range(len(sets)) for b in range(len(sets))]
    expected = [
        len(sets[a] & sets[b]) / len(sets[a] | sets[b]) if sets[a] | sets[b] else 0.0
        for a, b in pairs
    ]
    assert compared(sets, pairs) == expected


def test_one_comparison_is_that_of_many() -> None:
    random = np.random.default_rng(4)
    first, second = (set(random.integers(0, 5000, 2000).tolist()) for _ in range(2))
    assert compared([first, second], [(0, 1)]) == [jaccard(array(first), array(second))]


def test_no_pairs_have_no_similarities() -> None:
    assert compared([{1}], []) == []


@pytest.mark.parametrize(
    ("ends", "pairs", "said"),
    [
        ([2, 4], [[0, 1]], "set 1 from 2 to 4 is not within 3 values"),
        ([2, 3], [[0, 2]], "pairs of 0 to 2 among 2 sets"),
        ([2, 3, 3], [[0, 1]], "2 starts and 3 ends"),
    ],
)
def test_sets_that_are_not_there_are_refused(
    ends: list[int], pairs: list[list[int]], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        compare_sets(
            np.arange(3, dtype=np.uint64), np.array([0, 2]), np.array(ends), np.array(pairs)
        )


# --- signatures


def test_agreements_are_counted_row_by_row() -> None:
    a = np.array([[1, 2, 3, 4], [0, 0, 0, 0], [2**32 - 1, 1, 1, 1]], np.uint32)
    b = np.array([[1, 2, 3, 4], [4, 3, 2, 1], [2**32 - 1, 2, 2, 1]], np.uint32)
    assert agreements(a, b).tolist() == [4, 0, 2]


@pytest.mark.parametrize("width", [1, 128, 1000])
def test_agreements_of_any_width_equal_those_of_numpy(width: int) -> None:
    a, b = np.random.default_rng(width).integers(0, 3, (2, 50, width), dtype=np.uint32)
    assert agreements(a, b).tolist() == (a == b).sum(axis=1).tolist()


def test_signatures_of_other_lengths_are_refused() -> None:
    with pytest.raises(UsageError, match="cannot be compared"):
        agreements(np.zeros((2, 4), np.uint32), np.zeros((2, 8), np.uint32))


@pytest.mark.parametrize(
    ("permutations", "threshold", "least"),
    # By exact fractions: the least c with sum_{i <= c} C(k, i) t^i (1 - t)^(k - i) > 2.87e-7.
    [(128, 0.8, 78), (128, 0.99, 118), (1024, 0.8, 753), (128, 0.5, 36), (8, 0.8, 0), (8, 1.0, 8)],
)
def test_the_least_matches_are_the_binomial_limit(
    permutations: int, threshold: float, least: int
) -> None:
    assert least_matches(permutations, threshold) == least


def test_none_of_400_pairs_at_the_threshold_has_fewer() -> None:
    random = np.random.default_rng(2)
    hasher = MinHasher(128)
    signatures = []
    for _ in range(400):
        values = random.integers(0, 2**64, 100, dtype=np.uint64)
        signatures += [hasher.signature(values[:90]), hasher.signature(values[10:])]
    found = agreements(np.array(signatures[::2]), np.array(signatures[1::2]))
    assert (found >= least_matches(128, 0.8)).all()


# --- planted duplicates, whose similarities another program measured on unhashed sets

# Its words: one CJK character or kana, or a run of other letters, numbers and underscores.
CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
PLANTED_WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+")


@pytest.fixture(scope="module")
def planted(shared: Path) -> dict[str, str]:
    """Return the folded text of every planted document by its id."""
    texts = {}
    for file in sorted((shared / "corpus" / "planted").glob("*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
            texts |= {(record := json.loads(line))["id"]: fold(record["text"]) for line in lines}
    return texts


@pytest.fixture(scope="module")
def planted_pairs(shared: Path) -> pl.DataFrame:
    return pl.read_parquet(shared / "corpus" / "planted" / "pairs.parquet")


def differences(
    texts: dict[str, str], pairs: pl.DataFrame, kind: UnitKind, column: str
) -> list[float]:
    """Return our Jaccard less the planted one for each pair of which both texts are in `texts`."""
    used = {i: shingle_hashes(texts[i], kind=kind, width=5) for i in texts}
    rows = pairs.select("id_a", "id_b", column).iter_rows()
    return [jaccard(used[a], used[b]) - value for a, b, value in rows if a in used and b in used]


def test_character_similarities_equal_the_planted_ones(
    planted: dict[str, str], planted_pairs: pl.DataFrame
) -> None:
    found = differences(planted, planted_pairs, "char", "jaccard_char5")
    assert len(found) == 800
    assert max(map(abs, found)) < 1e-9


def test_word_similarities_equal_the_planted_ones_where_words_are_the_same(
    planted: dict[str, str], planted_pairs: pl.DataFrame
) -> None:
    # There marks separate and numbers like '²' do not, here the other way round; there kana
    # punctuation is a word, here Han beyond U+FFFF is cut. Of all other texts the units are equal.
    same = {i: t for i, t in planted.items() if split_units(t, "auto") == PLANTED_WORD.findall(t)}
    found = differences(same, planted_pairs, "auto", "jaccard_word5")
    assert len(found) > 600
    assert max(map(abs, found)) < 1e-9


def test_word_similarities_are_near_the_planted_ones_for_all_texts(
    planted: dict[str, str], planted_pairs: pl.DataFrame
) -> None:
    found = differences(planted, planted_pairs, "auto", "jaccard_word5")
    assert len(found) == 800
    assert max(map(abs, found)) < 0.001
