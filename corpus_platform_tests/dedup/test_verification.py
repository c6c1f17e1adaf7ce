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
from corpus_platform.dedup.verification import jaccard, prefilter, verify
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


def test_verify_keeps_pairs_at_the_threshold_with_their_similarity() -> None:
    sets = [array(set(range(4))), array(set(range(5))), array(set(range(9))), array({99})]
    pairs = np.array([[0, 1], [0, 2], [1, 2], [2, 3]])
    edges = verify(pairs, sets.__getitem__, 0.8)
    assert edges.pairs.tolist() == [[0, 1]]
    assert edges.similarity.tolist() == [4 / 5]


@given(st.lists(SETS.filter(bool), min_size=2, max_size=6), st.sampled_from([0.2, 0.5, 0.8, 1.0]))
@settings(deadline=None, max_examples=100)
def test_verify_equals_set_arithmetic_on_all_pairs(sets: list[set[int]], threshold: float) -> None:
    pairs = [[a, b] for a in range(len(sets)) for b in range(a + 1, len(sets))]
    edges = verify(np.array(pairs), lambda i: array(sets[i]), threshold)
    expected = {
        (a, b): len(sets[a] & sets[b]) / len(sets[a] | sets[b])
        for a, b in pairs
        if len(sets[a] & sets[b]) / len(sets[a] | sets[b]) >= threshold
    }
    assert dict(zip(map(tuple, edges.pairs.tolist()), edges.similarity, strict=True)) == expected


def test_verify_of_no_pairs_gives_no_edges() -> None:
    edges = verify(np.empty((0, 2), np.int64), lambda i: array({i}), 0.8)
    assert edges.pairs.shape == (0, 2)
    assert edges.similarity.shape == (0,)


@pytest.mark.parametrize(
    ("permutations", "threshold", "least"),
    # By exact fractions: the least c with sum_{i <= c} C(k, i) t^i (1 - t)^(k - i) > 2.87e-7.
    [(128, 0.8, 78), (128, 0.99, 118), (1024, 0.8, 753), (128, 0.5, 36), (8, 0.8, 0), (8, 1.0, 8)],
)
def test_the_prefilter_drops_pairs_below_the_binomial_limit(
    permutations: int, threshold: float, least: int
) -> None:
    signatures = np.zeros((permutations + 2, permutations), np.uint32)
    for equal in range(permutations + 1):
        signatures[equal + 1, equal:] = 1  # row equal + 1 has `equal` values of row 0
    pairs = np.array([[0, row] for row in range(1, permutations + 2)])
    stays = prefilter(pairs, signatures, threshold)
    assert stays[:, 1].tolist() == list(range(least + 1, permutations + 2))


def test_the_prefilter_loses_none_of_400_pairs_at_the_threshold() -> None:
    random = np.random.default_rng(2)
    hasher = MinHasher(128)
    signatures = []
    for _ in range(400):
        values = random.integers(0, 2**64, 100, dtype=np.uint64)
        signatures += [hasher.signature(values[:90]), hasher.signature(values[10:])]
    pairs = np.arange(800).reshape(400, 2)
    assert np.array_equal(prefilter(pairs, np.array(signatures), 0.8), pairs)


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
