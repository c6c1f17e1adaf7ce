import math
import subprocess
import sys
import tracemalloc
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.dedup.clusters import (
    EXACT,
    KEPT,
    NEAR,
    Decisions,
    Keep,
    collapse_exact,
    components,
    decide,
    unmeasured,
)
from corpus_platform.dedup.verification import Edges
from corpus_platform.errors import UsageError

NUMBERS = st.one_of(st.integers(0, 60), st.integers(0, 2**32 - 1))


def edges_of(*edges: tuple[int, int, float]) -> Edges:
    pairs = np.array([edge[:2] for edge in edges], np.int64).reshape(-1, 2)
    return Edges(pairs, np.array([edge[2] for edge in edges], np.float64))


def slow_components(n: int, pairs: list[tuple[int, int]]) -> list[int]:
    """Give both ends the smaller label until nothing changes."""
    labels = list(range(n))
    changed = True
    while changed:
        changed = False
        for a, b in pairs:
            if labels[a] != labels[b]:
                labels[a] = labels[b] = min(labels[a], labels[b])
                changed = True
    return labels


# --- components


def test_the_four_node_fixture_has_two_components() -> None:
    # nodes 1..4 of the report are 0..3 here: edges (1,3), (2,4)
    assert components(4, np.array([[0, 2], [1, 3]])).tolist() == [0, 1, 0, 1]


@given(
    st.integers(1, 25).flatmap(
        lambda n: st.tuples(
            st.just(n),
            st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40),
        )
    )
)
@settings(deadline=None, max_examples=120)
def test_components_equal_those_of_patient_relabelling(
    graph: tuple[int, list[tuple[int, int]]],
) -> None:
    n, pairs = graph
    found = components(n, np.array(pairs, np.int64).reshape(-1, 2))
    assert found.tolist() == slow_components(n, pairs)


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled", "shuffled nodes"])
def test_cc_04_a_chain_of_200_001_has_one_component_in_any_order(order: str) -> None:
    chain = np.arange(200_001)
    if order == "shuffled nodes":
        chain = np.random.default_rng(1).permutation(chain)
    pairs = np.column_stack([chain[:-1], chain[1:]])
    if order == "descending":
        pairs = pairs[::-1].copy()
    elif order == "shuffled":
        pairs = np.random.default_rng(2).permutation(pairs)
    tracemalloc.start()
    try:
        labels = components(200_006, pairs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not labels[:200_001].any()
    assert labels[200_001:].tolist() == [200_001, 200_002, 200_003, 200_004, 200_005]
    assert peak < 200 * 2**20


def test_a_star_whose_centre_is_last_has_one_component() -> None:
    leaves = np.arange(50_000)
    pairs = np.column_stack([leaves, np.full(50_000, 50_000)])
    assert not components(50_001, pairs).any()


def test_pairs_of_nodes_that_are_not_there_are_refused() -> None:
    with pytest.raises(UsageError, match="0 to 3 among 3 documents"):
        components(3, np.array([[0, 3]]))


# --- exact copies


def digests_of(*values: bytes) -> npt.NDArray[np.uint8]:
    """Return digests that begin with these bytes, zeros behind."""
    return np.frombuffer(b"".join(v.ljust(32, b"\0") for v in values), np.uint8).reshape(-1, 32)


def collapsed(values: list[bytes], numbers: list[int]) -> list[tuple[int, int]]:
    copies, firsts = collapse_exact(digests_of(*values), np.array(numbers, np.int64))
    return list(zip(copies.tolist(), firsts.tolist(), strict=True))


def test_copies_collapse_to_the_first_in_key_order() -> None:
    assert collapsed([b"b", b"a", b"b", b"a", b"c", b"b"], [2, 4, 6, 8, 9, 11]) == [
        (6, 2),
        (8, 4),
        (11, 2),
    ]
    assert collapsed([], []) == []


@pytest.mark.parametrize("place", [0, 7, 8, 15, 16, 23, 24, 31])
def test_each_of_32_bytes_makes_a_digest_another(place: int) -> None:
    other = bytearray(32)
    other[place] = 1
    assert collapsed([bytes(32), bytes(other), bytes(32)], [0, 1, 2]) == [(2, 0)]


@given(
    st.lists(
        st.tuples(st.sampled_from([b"", b"a", b"b", bytes(31) + b"c", bytes(8) + b"d"]), NUMBERS),
        max_size=40,
        unique_by=lambda row: row[1],
    )
)
@settings(deadline=None, max_examples=150)
def test_collapsing_equals_a_dictionary(rows: list[tuple[bytes, int]]) -> None:
    first: dict[bytes, int] = {}
    expected = [
        (number, first[value])
        for value, number in sorted(rows, key=lambda row: row[1])
        if first.setdefault(value, number) != number
    ]
    assert collapsed([v for v, _ in rows], [n for _, n in rows]) == expected


def test_digests_of_another_length_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\(2, 31\) for 2 documents"):
        collapse_exact(np.zeros((2, 31), np.uint8), np.arange(2))


# --- decisions


class Verdict(NamedTuple):
    kept: bool
    kind: int
    twin: int
    similarity: float


def verdicts(decisions: Decisions) -> list[Verdict]:
    """Return the decisions with -1 for a similarity of none, so that they compare."""
    similarity = np.nan_to_num(decisions.similarity, nan=-1.0)
    columns = (decisions.kept, decisions.kind, decisions.twin, similarity)
    return [Verdict(*row) for row in zip(*(c.tolist() for c in columns), strict=True)]


def slow_first_seen(representative: list[int], edges: Edges) -> list[Verdict]:
    """The rule of the design, one document after the other."""
    decided: list[Verdict] = []
    weights = dict(zip(map(tuple, edges.pairs.tolist()), edges.similarity.tolist(), strict=True))
    for document, first in enumerate(representative):
        if first != document:
            r = decided[first]
            twin = (first, 1.0) if r.kept else (r.twin, r.similarity)
            decided.append(Verdict(False, EXACT, *twin))
            continue
        near = [(-weights[a, document], a) for a in range(document) if (a, document) in weights]
        near = [(s, a) for s, a in near if decided[a].kept]
        if near:
            similarity, twin = min(near)
            decided.append(Verdict(False, NEAR, twin, -similarity))
        else:
            decided.append(Verdict(True, KEPT, -1, -1.0))
    return decided


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[int], Edges]:
    """Draw documents of which some are copies, and edges between the others."""
    content = draw(st.lists(st.integers(0, 14), min_size=1, max_size=20))
    first: dict[int, int] = {}
    representative = [first.setdefault(c, i) for i, c in enumerate(content)]
    firsts = sorted(first.values())
    possible = [(a, b) for a in firsts for b in firsts if a < b]
    pairs = draw(st.lists(st.sampled_from(possible), unique=True)) if possible else []
    similar = [draw(st.sampled_from([0.8, 0.85, 0.9, 0.95])) for _ in pairs]
    return representative, edges_of(*((a, b, s) for (a, b), s in zip(pairs, similar, strict=True)))


def measured(representative: npt.NDArray[np.int64], edges: Edges) -> Edges:
    """Return a similarity that the numbers give of each pair that has no edge."""
    pairs = unmeasured(representative, edges)
    return Edges(pairs, 1 / (2 + pairs.sum(axis=1)))


def decided(corpus: tuple[list[int], Edges], keep: Keep) -> Decisions:
    representative, edges = np.array(corpus[0], np.int64), corpus[1]
    return decide(representative, edges, keep=keep, others=measured(representative, edges))


def slow_one_per_cluster(representative: list[int], edges: Edges) -> list[Verdict]:
    """The earliest of each component stays."""
    decided: list[Verdict] = []
    weights = dict(zip(map(tuple, edges.pairs.tolist()), edges.similarity.tolist(), strict=True))
    labels = slow_components(len(representative), list(weights))
    for document, first in enumerate(representative):
        kept = labels[first]
        if kept == document:
            decided.append(Verdict(True, KEPT, -1, -1.0))
            continue
        similarity = weights.get((kept, first), 1 / (2 + kept + first)) if kept != first else 1.0
        kind = NEAR if first == document else EXACT
        decided.append(Verdict(False, kind, kept, similarity))
    return decided


@given(corpora())
@settings(deadline=None, max_examples=150)
def test_first_seen_equals_the_rule_applied_document_by_document(
    corpus: tuple[list[int], Edges],
) -> None:
    assert verdicts(decided(corpus, "first_seen")) == slow_first_seen(*corpus)


@given(corpora())
@settings(deadline=None, max_examples=120)
def test_first_seen_drops_only_for_a_kept_twin_and_keeps_no_edge_whole(
    corpus: tuple[list[int], Edges],
) -> None:
    found = decided(corpus, "first_seen")
    assert found.kept[found.twin[~found.kept]].all()
    ends = found.kept[corpus[1].pairs]
    assert not (ends[:, 0] & ends[:, 1]).any()
    least = found.least_similarity
    assert least is None or least >= 0.8


@given(corpora(), st.sampled_from(["first_seen", "one_per_cluster"]))
@settings(deadline=None, max_examples=120)
def test_every_document_is_kept_or_an_exact_or_a_near_copy(
    corpus: tuple[list[int], Edges], keep: Keep
) -> None:
    found = decided(corpus, keep)
    counts = np.bincount(found.kind, minlength=3)
    assert counts.sum() == len(corpus[0])
    assert counts[KEPT] == found.kept.sum()
    copies = sum(first != i for i, first in enumerate(corpus[0]))
    assert counts[EXACT] == copies


@given(corpora(), st.sampled_from(["first_seen", "one_per_cluster"]))
@settings(deadline=None, max_examples=120)
def test_clusters_are_the_components_over_edges_and_copies(
    corpus: tuple[list[int], Edges], keep: Keep
) -> None:
    representative, edges = corpus
    links = [*map(tuple, edges.pairs.tolist()), *((r, i) for i, r in enumerate(representative))]
    expected = slow_components(len(representative), links)
    found = decided(corpus, keep)
    assert found.cluster.tolist() == expected
    assert found.cluster_size.tolist() == [expected.count(label) for label in expected]


@given(corpora(), st.data())
@settings(deadline=None, max_examples=120)
def test_documents_added_at_the_end_change_no_earlier_decision(
    corpus: tuple[list[int], Edges], data: st.DataObject
) -> None:
    representative, edges = corpus
    before = data.draw(st.integers(0, len(representative)))
    old = edges.pairs[:, 1] < before
    smaller = (representative[:before], Edges(edges.pairs[old], edges.similarity[old]))
    assert (
        verdicts(decided(smaller, "first_seen")) == verdicts(decided(corpus, "first_seen"))[:before]
    )


@given(corpora())
@settings(deadline=None, max_examples=120)
def test_one_per_cluster_equals_the_rule_one_document_after_the_other(
    corpus: tuple[list[int], Edges],
) -> None:
    assert verdicts(decided(corpus, "one_per_cluster")) == slow_one_per_cluster(*corpus)


@given(corpora())
@settings(deadline=None, max_examples=120)
def test_one_per_cluster_keeps_the_earliest_of_every_component(
    corpus: tuple[list[int], Edges],
) -> None:
    found = decided(corpus, "one_per_cluster")
    assert np.array_equal(np.flatnonzero(found.kept), np.unique(found.cluster))
    assert np.array_equal(found.twin[~found.kept], found.cluster[~found.kept])
    assert not np.isnan(found.similarity[~found.kept]).any()


def test_the_order_of_edges_does_not_matter() -> None:
    edges = edges_of((0, 2, 0.9), (1, 2, 0.9), (2, 3, 0.8), (0, 4, 0.85), (1, 4, 0.95))
    backwards = Edges(edges.pairs[::-1], edges.similarity[::-1])
    one, other = (decide(np.arange(5), e, keep="first_seen") for e in (edges, backwards))
    assert verdicts(one) == verdicts(other)


def test_the_twin_is_the_most_similar_kept_one_and_of_equals_the_earliest() -> None:
    edges = edges_of((0, 2, 0.9), (1, 2, 0.9), (0, 3, 0.85), (1, 3, 0.95), (2, 3, 0.99))
    found = decide(np.arange(4), edges, keep="first_seen")
    assert found.twin.tolist() == [-1, -1, 0, 1]
    assert found.similarity[2:].tolist() == [0.9, 0.95]


@pytest.mark.parametrize("keep", ["first_seen", "one_per_cluster"])
def test_a_copy_of_a_dropped_document_takes_its_twin_and_similarity(keep: Keep) -> None:
    # 1 is near 0; 2 is a copy of 1, and 3 of 0
    found = decide(np.array([0, 1, 1, 0]), edges_of((0, 1, 0.9)), keep=keep)
    assert found.kind.tolist() == [KEPT, NEAR, EXACT, EXACT]
    assert found.twin.tolist() == [-1, 0, 0, 0]
    assert found.similarity[1:].tolist() == [0.9, 0.9, 1.0]
    assert math.isnan(found.similarity[0])
    assert found.cluster.tolist() == [0, 0, 0, 0]
    assert found.cluster_size.tolist() == [4, 4, 4, 4]


def test_dd_10_the_highest_number_is_a_document_like_others() -> None:
    found = decide(np.array([0, 1, 0]), edges_of((0, 1, 0.8)), keep="first_seen")
    assert set(found.twin.tolist()) <= {-1, 0, 1, 2}
    assert int(found.kept.sum()) + int((found.kind != KEPT).sum()) == 3


def test_no_documents_need_no_decisions() -> None:
    found = decide(np.empty(0, np.int64), edges_of(), keep="first_seen")
    assert found.kept.shape == (0,)
    assert found.least_similarity is None


def test_one_per_cluster_takes_from_others_what_no_edge_gives() -> None:
    edges = edges_of((0, 1, 0.9), (1, 2, 0.8))
    assert unmeasured(np.arange(3), edges).tolist() == [[0, 2]]
    others = edges_of((0, 1, 0.1), (0, 2, 0.25))  # the edge counts where there is one
    found = decide(np.arange(3), edges, keep="one_per_cluster", others=others)
    assert found.similarity[1:].tolist() == [0.9, 0.25]
    assert found.least_similarity == 0.25


def test_copies_of_documents_are_not_measured() -> None:
    representative = np.array([0, 1, 2, 0, 1, 2])
    assert unmeasured(representative, edges_of((0, 1, 0.9), (0, 2, 0.8))).shape == (0, 2)


def test_one_per_cluster_names_the_pair_whose_similarity_nothing_gives() -> None:
    edges = edges_of((0, 1, 0.9), (1, 2, 0.8), (2, 3, 0.8))
    with pytest.raises(UsageError, match=r"\[0, 3\], nor of 0 other pairs"):
        decide(np.arange(4), edges, keep="one_per_cluster", others=edges_of((0, 2, 0.25)))


def test_edges_that_name_an_exact_copy_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\[1, 2\] names an exact copy"):
        decide(np.array([0, 1, 0]), edges_of((0, 1, 0.9), (1, 2, 0.9)), keep="first_seen")


def test_edges_in_the_wrong_direction_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\[1, 0\]: the earlier"):
        decide(np.arange(2), edges_of((1, 0, 0.9)), keep="first_seen")


def test_edges_of_documents_that_are_not_there_are_refused() -> None:
    with pytest.raises(UsageError, match=r"\[1, 2\] names a document that is not there"):
        decide(np.arange(2), edges_of((1, 2, 0.9)), keep="first_seen")


@pytest.mark.parametrize("wrong", [[0, 2, 2], [0, 0, 1], [0, -1, 2]])
def test_a_representative_stands_for_itself_and_is_no_later_one(wrong: list[int]) -> None:
    with pytest.raises(UsageError, match="is represented by"):
        decide(np.array(wrong), edges_of(), keep="first_seen")


@pytest.mark.slow
def test_ten_million_documents_are_decided_in_seconds_and_a_gigabyte_and_a_half() -> None:
    program = """
import resource, time
import numpy as np
from corpus_platform.dedup import cluster_kernels
from corpus_platform.dedup.clusters import collapse_exact, decide
from corpus_platform.dedup.split import assign_split, content_keys
from corpus_platform.dedup.verification import Edges
cluster_kernels.warm()
count, random = 10_000_000, np.random.default_rng(1)
start, used = time.process_time(), 0.0
representative, keys = np.arange(count), np.empty(count, np.uint64)
for number in range(8):
    numbers = np.flatnonzero(np.arange(count) % 8 == number)
    digests = np.random.default_rng(number).integers(0, 256, (len(numbers), 32), dtype=np.uint8)
    digests[1::10] = digests[::10]
    start = time.process_time()
    copies, firsts = collapse_exact(digests, numbers)
    representative[copies] = firsts
    keys[numbers] = content_keys(digests, 42)
    used += time.process_time() - start
alone = np.flatnonzero(representative == np.arange(count))
places = np.unique(random.integers(0, len(alone) - 20, 3_000_000))
pairs = np.column_stack([alone[places], alone[places + random.integers(1, 20, len(places))]])
edges = Edges(pairs, random.uniform(0.8, 1.0, len(pairs)))
start = time.process_time()
found = decide(representative, edges, keep="first_seen")
split = assign_split(keys, found.kept, np.arange(count) < 1_000_000, share=0.005)
used += time.process_time() - start
print(used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, len(alone), int(found.kept.sum()))
"""
    output = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": ":".join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    seconds, memory, alone, kept = map(float, output.split())
    assert alone == 9_000_000
    assert 6_000_000 < kept < 9_000_000
    assert seconds < 20
    assert memory < 1.5e9
