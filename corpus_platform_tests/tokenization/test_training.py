import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from corpus_platform.config import SPECIAL_TOKENS
from corpus_platform.errors import SettingsError
from corpus_platform.tokenization import training
from corpus_platform.tokenization.training import choose_sample, fingerprint, train
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


@given(
    st.lists(st.integers(0, 50), max_size=30), st.integers(1, 400), st.integers(0, 3), st.randoms()
)
@settings(deadline=None, max_examples=60)
def test_the_sample_is_the_obvious_one_in_any_order_of_documents(
    sizes: list[int], limit: int, seed: int, random: "np.random.Generator"
) -> None:
    numbers = list(range(len(sizes)))
    random.shuffle(numbers)
    mask = choose_sample(
        [digest(i) for i in numbers],
        np.array([sizes[i] for i in numbers], dtype=np.int64),
        limit_bytes=limit,
        seed=seed,
    )
    chosen = {i for i, marked in zip(numbers, mask, strict=True) if marked}
    assert chosen == obvious_sample(dict(enumerate(sizes)), limit, seed)


def test_all_documents_are_taken_when_they_fit() -> None:
    mask = choose_sample([digest(i) for i in range(3)], np.array([5, 3, 2]), limit_bytes=10, seed=1)
    assert mask.tolist() == [True, True, True]


def test_a_document_larger_than_the_limit_does_not_empty_the_sample() -> None:
    for seed in range(10):
        mask = choose_sample(
            [digest(i) for i in range(2)], np.array([11, 4]), limit_bytes=10, seed=seed
        )
        assert mask.tolist() == [False, True]


def test_other_seeds_choose_other_documents() -> None:
    digests, sizes = [digest(i) for i in range(1000)], np.ones(1000, dtype=np.int64)
    masks = [choose_sample(digests, sizes, limit_bytes=500, seed=seed) for seed in range(4)]
    assert [int(mask.sum()) for mask in masks] == [500] * 4
    # Independent halves share 250 documents; 8 standard deviations are 63.
    assert all(187 < int((a & b).sum()) < 313 for a, b in pairwise(masks))
