import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.errors import SettingsError
from corpus_platform.tokenization import training
from corpus_platform.tokenization.training import Chosen, Sample, fingerprint, train
from corpus_platform_tests.tokenization.trained import EOS, trained

TIES = [
    *("aa bb cc dd ee ff gg hh", "bb aa dd cc ff ee hh gg", "ab ba cd dc ef fe gh hg"),
] * 5

TRAIN_TIES = f"""
import hashlib, sys
from corpus_platform.tokenization.training import tokenizer_bytes, train
texts = {TIES!r}
if sys.argv[1] == "reversed":
    texts.reverse()
data = tokenizer_bytes(train(texts, vocab_size=300, special_tokens=["<|endoftext|>"]))
print(hashlib.sha256(data).hexdigest())
"""


def vocabulary(data: bytes) -> dict[str, int]:
    return json.loads(data)["model"]["vocab"]


def test_training_gives_the_same_bytes_in_fresh_processes_on_one_and_two_threads() -> None:
    found = set()
    for threads in ("1", "2"):
        for direction in ("forward", "reversed"):
            environment = os.environ | {
                "RAYON_NUM_THREADS": threads,
                "TOKENIZERS_PARALLELISM": "true",
            }
            command = [sys.executable, "-c", TRAIN_TIES, direction]
            ran = subprocess.run(command, env=environment, capture_output=True, check=True)
            found.add(ran.stdout)
    assert len(found) == 1


def test_all_256_bytes_have_a_token_whatever_the_corpus() -> None:
    assert set(pre_tokenizers.ByteLevel.alphabet()) <= set(vocabulary(trained()))


def test_special_tokens_come_first_and_ids_have_no_hole() -> None:
    written = json.loads(trained(("a b",), 400, SPECIAL_TOKENS))
    ids = written["model"]["vocab"]
    assert [ids[token] for token in SPECIAL_TOKENS] == list(range(11))
    assert sorted(ids.values()) == list(range(len(ids)))
    assert [(t["id"], t["content"], t["special"]) for t in written["added_tokens"]] == [
        (i, token, True) for i, token in enumerate(SPECIAL_TOKENS)
    ]


def test_a_tiny_corpus_gives_fewer_tokens_than_asked() -> None:
    # 1 special, 256 bytes, 13 merges: "tiny" 3, " corpus" 6, " only" 4
    tokenizer = train(["tiny corpus only"] * 3, vocab_size=32_000, special_tokens=[EOS])
    assert tokenizer.get_vocab_size() == 270


def test_a_marker_in_the_training_text_makes_no_second_entry() -> None:
    text = "see <|endoftext|> marker <|endoftext|> here <|endoftext|>"
    ids = vocabulary(trained((text,) * 50, 400))
    assert [token for token in ids if "<|endoftext|>" in token] == [EOS]
    assert ids[EOS] == 0


def test_the_tokenizer_has_no_normalizer_and_no_unknown_token() -> None:
    written = json.loads(trained())
    assert written["normalizer"] is None
    assert written["model"]["unk_token"] is None
    assert written["pre_tokenizer"]["add_prefix_space"] is False


def test_the_fingerprint_is_the_sha256_of_the_stored_bytes() -> None:
    assert fingerprint(b"abc") == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize(("letter", "bytes_each"), [("a", 1), ("中", 3)])
def test_a_run_of_a_million_letters_is_trained_on_in_pieces(letter: str, bytes_each: int) -> None:
    # As one word it takes more than eight minutes, and fills the vocabulary with longer and longer runs.
    ids = vocabulary(trained(("the cat sat on the mat", letter * 10**6), 400))
    assert max(len(token) for token in ids if token != EOS) == 256 * bytes_each


def test_more_text_than_32_bit_counts_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert training.MAX_SAMPLE_BYTES == 2**31 - 1
    monkeypatch.setattr(training, "MAX_SAMPLE_BYTES", 10)
    train(["中中中", "a"], vocab_size=300, special_tokens=[EOS])
    with pytest.raises(SettingsError, match=r"tokenizer\.sample_bytes: .* exceeds 10 bytes"):
        train(["中中中", "aa"], vocab_size=300, special_tokens=[EOS])


RUNS = st.tuples(
    st.sampled_from(["a", "中", "é", "-", "_-", "7", " ", "\n", "e\u0301", "x "]),
    st.integers(1, 600),
)


@given(st.lists(RUNS, max_size=6))
@settings(deadline=None, max_examples=60)
def test_cut_texts_lose_nothing_and_hold_no_long_word(runs: list[tuple[str, int]]) -> None:
    text = "".join(unit * times for unit, times in runs)
    pieces = list(training._cut_overlong(text))
    assert "".join(pieces) == text
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    for piece in pieces:
        for _, (start, end) in words.pre_tokenize_str(piece):
            assert end - start <= training.MAX_WORD_CHARS + 1  # a leading blank


def test_ordinary_words_are_not_cut() -> None:
    text = "Donaudampfschifffahrtsgesellschaft " * 50 + "机器学习，模型训练。" * 50
    assert list(training._cut_overlong(text)) == [text]


def digest(i: int) -> bytes:
    return hashlib.sha256(str(i).encode()).digest()


def obvious_sample(sizes: dict[int, int], limit: int, seed: int) -> set[int]:
    """Take documents by rising key until the next does not fit, in Python integers."""
    key = hashlib.sha256(f"sample {seed}".encode()).digest()
    factors = [int.from_bytes(key[i : i + 8], "little") | 1 for i in (0, 8)]

    def rank(i: int) -> int:
        words = [int.from_bytes(digest(i)[j : j + 8], "little") for j in (0, 8)]
        return (words[0] * factors[0] + words[1] * factors[1]) % 2**64

    chosen: set[int] = set()
    for i in sorted((i for i in sizes if sizes[i] <= limit), key=rank):
        if sum(sizes[j] for j in chosen) + sizes[i] > limit:
            break
        chosen.add(i)
    return chosen


Document = tuple[int, int]  # of which digest, and bytes


def sampled(parts: Sequence[Sequence[Document]], *, limit: int, seed: int) -> Chosen:
    """Offer documents in parts, under their numbers in order; those of part n are of shard n."""
    sample, offered = Sample(limit_bytes=limit, seed=seed), 0
    for number, part in enumerate(parts):
        digests = np.frombuffer(b"".join(digest(i) for i, _ in part), np.uint8).reshape(-1, 32)
        places = [(number, offered + i) for i in range(len(part))]
        sizes = np.array([size for _, size in part], dtype=np.int64)
        sample.offer(digests, sizes, np.array(places, dtype=np.int64).reshape(-1, 2))
        offered += len(part)
    return sample.chosen()


def plain_sample(documents: Sequence[Document], *, limit: int, seed: int) -> list[int]:
    """Return the numbers of the documents of a sample, all of them being held at once."""
    words = np.frombuffer(b"".join(digest(i) for i, _ in documents), "<u8").reshape(-1, 4)
    sizes = np.array([size for _, size in documents], dtype=np.int64)
    key = np.frombuffer(hashlib.sha256(f"sample {seed}".encode()).digest(), dtype="<u8")
    candidates = np.flatnonzero(sizes <= limit)
    own = words[candidates]
    ranks = own[:, 0] * (key[0] | np.uint64(1)) + own[:, 1] * (key[1] | np.uint64(1))
    ranked = candidates[np.lexsort((*own.T, ranks))]
    return sorted(ranked[np.cumsum(sizes[ranked]) <= limit].tolist())


@given(
    st.lists(st.integers(0, 50), max_size=30), st.integers(1, 400), st.integers(0, 3), st.randoms()
)
@settings(deadline=None, max_examples=60)
def test_the_sample_is_the_obvious_one_in_any_order_of_documents(
    sizes: list[int], limit: int, seed: int, random: "np.random.Generator"
) -> None:
    numbers = list(range(len(sizes)))
    random.shuffle(numbers)
    found = sampled([[(i, sizes[i]) for i in numbers]], limit=limit, seed=seed)
    chosen = {numbers[i] for i in found.places[:, 1].tolist()}
    assert chosen == obvious_sample(dict(enumerate(sizes)), limit, seed)


# Few digests: many are equal, and of equal ones the first goes first.
PARTS = st.lists(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60)), max_size=30), max_size=12
)


@given(PARTS, st.integers(1, 1500), st.integers(0, 3), st.sampled_from([0, 1, 3, 1 << 16]))
@settings(deadline=None, max_examples=100)
def test_the_sample_is_that_of_all_documents_however_they_are_parted(
    parts: list[list[Document]], limit: int, seed: int, together: int
) -> None:
    _hold_against_the_plain_sample(parts, limit, seed, together)


@pytest.mark.slow
@given(PARTS, st.integers(1, 1500), st.integers(0, 3), st.sampled_from([0, 1, 3, 1 << 16]))
@settings(deadline=None, max_examples=1000)
def test_the_sample_is_that_of_all_documents_in_many_ways_to_part_them(
    parts: list[list[Document]], limit: int, seed: int, together: int
) -> None:
    _hold_against_the_plain_sample(parts, limit, seed, together)


def _hold_against_the_plain_sample(
    parts: list[list[Document]], limit: int, seed: int, together: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_TOGETHER", together)
        found = sampled(parts, limit=limit, seed=seed)
    every = [document for part in parts for document in part]
    assert found.places[:, 1].tolist() == plain_sample(every, limit=limit, seed=seed)
    assert found.sizes.tolist() == [every[i][1] for i in found.places[:, 1].tolist()]


def test_of_many_documents_no_more_are_held_than_the_sample_and_what_waits() -> None:
    sample, rng = Sample(limit_bytes=100_000, seed=1), np.random.default_rng(1)  # 1,000 documents
    for number in range(100):
        places = np.stack([np.full(10_000, number), np.arange(10_000)], axis=1)
        sizes = np.full(10_000, 100)
        sample.offer(rng.integers(0, 256, (10_000, 32), np.uint8), sizes, places)
        # 65,536 wait until they are sorted for the first time, and a part comes on top.
        assert len(sample._held) + sum(map(len, sample._waiting)) < 76_600
    assert len(sample.chosen().sizes) == 1000
    # From then on those that wait are the lower ones: of 930,000 about 1,000 * ln(1,000,000/70,000).
    assert sum(map(len, sample._waiting)) == 0


def test_all_documents_are_taken_when_they_fit() -> None:
    found = sampled([[(0, 5), (1, 3)], [(2, 2)]], limit=10, seed=1)
    assert found.places.tolist() == [[0, 0], [0, 1], [1, 2]]


def test_a_document_larger_than_the_limit_does_not_empty_the_sample() -> None:
    for seed in range(10):
        assert sampled([[(0, 11), (1, 4)]], limit=10, seed=seed).places.tolist() == [[0, 1]]


def test_other_seeds_choose_other_documents() -> None:
    parts = [[(i, 1) for i in range(1000)]]
    chosen = [set(sampled(parts, limit=500, seed=s).places[:, 1].tolist()) for s in range(4)]
    assert [len(one) for one in chosen] == [500] * 4
    # Independent halves share 250 documents; 8 standard deviations are 63.
    assert all(187 < len(a & b) < 313 for a, b in pairwise(chosen))
