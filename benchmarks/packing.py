"""Speed of planning rows by best fit, ours beside packers that go piece by piece.

    python benchmarks/packing.py [--documents 1_000_000] [--rounds 5]

Lengths are drawn like those of web pages, chats and source files. The tree is a best fit decreasing
over a segment tree of node objects, one leaf for each room a row may have, as training libraries
have it in Python; plain is the same fit with lists and one integer as a set of bits. All three must
open equally many rows. Seconds are CPU time of one process, held to one core where the system can;
ours is the least of some rounds, the slow ones run once. Memory is what is held at the peak beyond
the lengths, plan included. The last lines are rows of a million tokens, with lengths that all differ.
"""

import argparse
import math
import os
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from corpus_platform.packing.rows import best_fit
from corpus_platform.packing.utilisation import compare


class Corpus(NamedTuple):
    """Lengths as drawn, and the tokens of a row."""

    name: str
    middle: int
    spread: float  # of the logarithm
    least: int
    greatest: int
    row_tokens: int


CORPORA = (
    Corpus("web, 2048", 450, 1.25, 20, 200_000, 2048),
    Corpus("web, 4096", 450, 1.25, 20, 200_000, 4096),
    Corpus("chat, 2048", 300, 0.9, 8, 2048, 2048),
    Corpus("code, 4096", 900, 1.6, 8, 500_000, 4096),
)
LONG_ROW = 1_000_000
T = TypeVar("T")


def main() -> None:
    """Print a table of speed, and one of what the strategies make of the same lengths."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print(f"{asked.documents:,} documents, each ended by one token; M documents a second\n")
    columns = ("rows", "used", "ours", "tree", "plain", "ours/tree", "ours/plain", "B/document")
    print(f"{'':12}" + "".join(f"{name:>12}" for name in columns))
    for corpus in CORPORA:
        lengths = _drawn(asked.documents, corpus)
        _speed(corpus.name, lengths, corpus.row_tokens, asked.rounds)
    _long_rows(asked.documents)
    _costs(asked.documents)


def _drawn(documents: int, corpus: Corpus) -> np.ndarray:
    middle, spread = math.log(corpus.middle), corpus.spread
    drawn = np.random.default_rng(0).lognormal(middle, spread, documents)
    return np.clip(drawn, corpus.least, corpus.greatest).astype(np.int64) + 1


def _speed(name: str, lengths: np.ndarray, row_tokens: int, rounds: int) -> None:
    plan, ours = _least(lambda: best_fit(lengths, row_tokens=row_tokens), rounds)
    rows, listed = len(plan.row_ends), lengths.tolist()
    (by_tree, tree), (by_plain, plain) = (
        _least(lambda packer=packer: packer(listed, row_tokens), 1) for packer in (_tree, _plain)
    )
    assert rows == len(by_tree) == len(by_plain)
    used = int(plan.length.sum()) / (rows * row_tokens)
    speeds = "".join(f"{len(lengths) / s / 1e6:12.3f}" for s in (ours, tree, plain))
    print(
        f"{name:12}{rows:12,}{used:12.3%}{speeds}{tree / ours:11.1f}x{plain / ours:11.1f}x"
        f"{_held(lengths, row_tokens) / len(lengths):12.0f}",
        flush=True,
    )


def _long_rows(documents: int) -> None:
    lengths = np.random.default_rng(0).integers(1, LONG_ROW, documents)
    plan, seconds = _least(lambda: best_fit(lengths, row_tokens=LONG_ROW), 1)
    listed = lengths.tolist()
    _, sorting = _least(lambda: sorted(listed), 1)
    used = int(lengths.sum()) / (len(plan.row_ends) * LONG_ROW)
    print(
        f"\nrows of {LONG_ROW:,}, {len(np.unique(lengths)):,} different lengths: {seconds:.2f} s,"
    )
    print(
        f"{len(plan.row_ends):,} rows, {used:.3%} used; Python sorts the lengths in {sorting:.2f} s"
    )


def _costs(documents: int) -> None:
    print(f"\n{'':12}{'strategy':>12}{'used':>12}{'cut':>12}{'needlessly':>12}")
    for corpus in CORPORA:
        found = compare(_drawn(documents, corpus), row_tokens=corpus.row_tokens)
        for strategy, cost in found.items():
            shares = (
                cost.share,
                *(n / documents for n in (cost.cut_documents, cost.needless_cuts)),
            )
            figures = "".join(f"{share:12.3%}" for share in shares)
            print(f"{corpus.name:12}{strategy:>12}{figures}")


def _held(lengths: np.ndarray, row_tokens: int) -> int:
    tracemalloc.start()
    best_fit(lengths, row_tokens=row_tokens)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def _least(work: Callable[[], T], rounds: int) -> tuple[T, float]:
    best = math.inf
    for _ in range(rounds):
        start = time.process_time()
        result = work()
        best = min(best, time.process_time() - start)
    return result, best


Row = list[tuple[int, int]]  # document and length of each piece


class _Node:
    """A node over a range of rooms; `most` is the greatest of them that some row has, 0 for none."""

    def __init__(self, low: int, high: int, above: "_Node | None", leaves: list["_Node"]) -> None:
        self.above, self.most = above, 0
        self.left: _Node | None = None
        self.right: _Node | None = None
        if low == high:
            leaves.append(self)
        else:
            middle = (low + high) // 2
            self.left = _Node(low, middle, self, leaves)
            self.right = _Node(middle + 1, high, self, leaves)


def _tightest(node: _Node, size: int) -> int:
    while node.left is not None and node.right is not None:
        node = node.left if node.left.most >= size else node.right
    return node.most


def _set(leaf: _Node, most: int) -> None:
    leaf.most, node = most, leaf.above
    while node is not None and node.left is not None and node.right is not None:
        node.most = max(node.left.most, node.right.most)
        node = node.above


def _tree(lengths: Sequence[int], row_tokens: int) -> list[Row]:
    leaves: list[_Node] = []
    root = _Node(0, row_tokens, None, leaves)
    open_rows: defaultdict[int, list[Row]] = defaultdict(list)
    rows, pieces = _pieces(lengths, row_tokens)
    for document, size in pieces:
        if root.most >= size:
            room = _tightest(root, size)
            row = open_rows[room].pop()
            if not open_rows[room]:
                _set(leaves[room], 0)
        else:
            room, row = row_tokens, []
            rows.append(row)
        row.append((document, size))
        open_rows[room - size].append(row)
        _set(leaves[room - size], room - size)
    return rows


def _plain(lengths: Sequence[int], row_tokens: int) -> list[Row]:
    open_rows: defaultdict[int, list[Row]] = defaultdict(list)
    rows, pieces = _pieces(lengths, row_tokens)
    rooms = 0
    for document, size in pieces:
        fitting = rooms >> size
        if fitting:
            room = size + (fitting & -fitting).bit_length() - 1
            row = open_rows[room].pop()
            if not open_rows[room]:
                rooms ^= 1 << room
        else:
            room, row = row_tokens, []
            rows.append(row)
        row.append((document, size))
        if room > size:
            open_rows[room - size].append(row)
            rooms |= 1 << room - size
    return rows


def _pieces(lengths: Sequence[int], row_tokens: int) -> tuple[list[Row], list[tuple[int, int]]]:
    """Return the whole rows of long documents, and the tails of all, longest first."""
    whole = [[(d, row_tokens)] for d, n in enumerate(lengths) for _ in range(n // row_tokens)]
    tails = [(d, n % row_tokens) for d, n in enumerate(lengths) if n % row_tokens]
    return whole, sorted(tails, key=lambda piece: -piece[1])


if __name__ == "__main__":
    main()
