"""The parts of deduplication together: cases that were met elsewhere, from texts to decisions."""

import random

import numpy as np
import pytest

from corpus_platform.dedup.clusters import EXACT, KEPT, NEAR, Keep
from corpus_platform.dedup.verification import jaccard
from corpus_platform.text.units import UnitKind
from corpus_platform_tests.dedup.chain import deduplicate, words

# Finds 0.9999 of the pairs at 0.8: for cases that need each edge of a chain.
SURE = (32, 4)

ZH1 = (
    "北京的春天常有大风天气老人们喜欢在公园里散步孩子们在湖边放风筝远处的山上开满了桃花游客从各地赶来"
    "拍照留念傍晚时分街边的小店亮起灯火卖着热腾腾的豆浆和包子人们围坐在一起聊着家常直到夜深才慢慢散去"
)
ZH2 = ZH1.replace("豆浆", "奶茶")
ZH3 = (
    "上海的秋天空气清爽年轻人喜欢沿着江边骑车工人们在码头忙着装卸货物高楼的玻璃映着晚霞出租车穿过隧道"
    "驶向机场商场里播放着轻快的音乐店员整理着新到的衣服顾客排队结账然后提着袋子走进地铁站各自回家休息"
)


def prose(seed: int, count: int, vocabulary: int = 3000) -> list[str]:
    chosen = random.Random(seed)
    return [f"term{chosen.randrange(vocabulary)}" for _ in range(count)]


def test_dd_01_texts_shorter_than_a_shingle_are_equal_only_to_copies() -> None:
    found = deduplicate(["oak", "elm", "oak", "ash tree by river"]).decisions
    assert found.kept.tolist() == [True, True, False, True]
    assert found.kind.tolist() == [KEPT, KEPT, EXACT, KEPT]
    assert found.cluster.tolist() == [0, 1, 0, 3]


def test_dd_01_texts_without_a_unit_are_equal_only_to_copies() -> None:
    found = deduplicate(["!!!", "???", "!!!", ""]).decisions
    assert found.kept.tolist() == [True, True, False, True]


@pytest.mark.parametrize("kind", ["auto", "char"])
def test_dd_03_texts_without_blanks_are_compared_by_characters(kind: UnitKind) -> None:
    result = deduplicate([ZH1, ZH2, ZH3], kind=kind)
    assert result.decisions.cluster.tolist() == [0, 0, 2]
    assert result.decisions.similarity[1] == 86 / 98
    assert jaccard(result.shingles[0], result.shingles[2]) == 0.0


def test_dd_03_as_words_they_are_strangers_and_not_equal() -> None:
    assert deduplicate([ZH1, ZH2, ZH3], kind="word").decisions.kept.tolist() == [True] * 3


def test_dd_04_template_pages_stay() -> None:
    facts = [(101, "Alder", 1951), (102, "Birch", 1962), (103, "Cedar", 1973), (104, "Alder", 1951)]
    pages = [
        f"County Road {n} is a rural highway maintained by the {c} office and opened to traffic in {y}."
        for n, c, y in facts
    ]
    assert deduplicate(pages).decisions.kept.all()


def test_dd_09_a_later_shard_is_dropped_for_the_older_one() -> None:
    old = " ".join(prose(1, 300))
    near = " ".join([*prose(1, 300)[:-5], *prose(2, 5)])
    new = " ".join(prose(3, 300))
    alone = deduplicate([old]).decisions
    found = deduplicate([old, old.upper(), near, new]).decisions
    assert found.kept.tolist() == [True, False, False, True]
    assert found.twin.tolist() == [-1, 0, 0, -1]
    assert found.kind.tolist() == [KEPT, EXACT, NEAR, KEPT]
    assert found.similarity[2] >= 0.9
    assert alone.kept.tolist() == [True]


@pytest.mark.parametrize(
    ("keep", "kept"),
    [("first_seen", [True, False, True]), ("one_per_cluster", [True, False, False])],
)
def test_cc_01_a_chain_of_three_is_one_cluster_and_no_edge_stays_whole(
    keep: Keep, kept: list[bool]
) -> None:
    texts = [words(0, 99), words(8, 107), words(16, 115)]
    found = deduplicate(texts, keep=keep, banding=SURE).decisions
    assert found.kept.tolist() == kept
    assert found.cluster.tolist() == [0, 0, 0]
    assert found.similarity[1] == 88 / 104


def test_cc_01_whoever_comes_first_no_edge_stays_whole() -> None:
    middle_first = [words(8, 107), words(0, 99), words(16, 115)]
    assert deduplicate(middle_first, banding=SURE).decisions.kept.tolist() == [True, False, False]


def test_cc_03_a_long_chain_keeps_every_second_document() -> None:
    chain = [words(8 * k, 8 * k + 99) for k in range(30)]
    found = deduplicate(chain, banding=SURE).decisions
    assert np.flatnonzero(found.kept).tolist() == list(range(0, 30, 2))
    assert found.least_similarity == 88 / 104
    assert found.cluster_size.tolist() == [30] * 30


def test_cc_03_one_per_cluster_reports_that_the_last_resembles_the_first_not_at_all() -> None:
    chain = [words(8 * k, 8 * k + 99) for k in range(30)]
    found = deduplicate(chain, keep="one_per_cluster", banding=SURE).decisions
    assert np.flatnonzero(found.kept).tolist() == [0]
    assert found.similarity[1] == 88 / 104
    assert found.similarity[2] == 80 / 112
    assert found.similarity[29] == 0.0
    assert found.least_similarity == 0.0


def test_two_hundred_long_unrelated_documents_all_stay() -> None:
    texts = [" ".join(prose(seed, 2400)) for seed in range(200)]
    assert min(map(len, texts)) > 20_000
    result = deduplicate(texts)
    assert result.decisions.kept.all()
    assert len(result.edges.pairs) == 0


def test_a_thousand_pages_of_one_template_stay() -> None:
    template = prose(0, 80)
    texts = [" ".join([*template, *prose(seed, 120)]) for seed in range(1, 1001)]
    assert int(deduplicate(texts).decisions.kept.sum()) >= 990


@pytest.mark.parametrize("keep", ["first_seen", "one_per_cluster"])
def test_recorded_similarities_are_those_of_the_texts_word_for_word(keep: Keep) -> None:
    texts = []
    for seed in range(20):
        body = prose(seed, 200)
        texts += [" ".join([*body[: 200 - cut], *prose(1000 + seed, cut)]) for cut in (0, 3, 8, 30)]
    found = deduplicate(texts, keep=keep, banding=SURE).decisions
    for document in np.flatnonzero(~found.kept).tolist():
        a, b = (texts[i].split() for i in (document, found.twin[document]))
        first, second = ({tuple(t[i : i + 5]) for i in range(len(t) - 4)} for t in (a, b))
        exact = len(first & second) / len(first | second)
        assert abs(found.similarity[document] - exact) < 1e-9
        assert exact >= 0.8 or keep == "one_per_cluster"
    assert 20 <= int(found.kept.sum()) < 80


SAMPLES = {
    "en": "The quick brown fox jumps over the lazy dog near the bank of the river",
    "zh": "人工智能正在改变我们的生活方式和工作方式",
    "ja": "人工知能は私たちの生活を大きく変えつつあります",
    "ko": "인공지능은 우리의 생활 방식을 크게 바꾸고 있습니다",
    "th": "ปัญญาประดิษฐ์กำลังเปลี่ยนแปลงชีวิตของเรา",
    "ar": "الذكاء الاصطناعي يغير طريقة حياتنا وعملنا اليوم",
}


@pytest.mark.parametrize("language", SAMPLES)
def test_a_thousand_copies_leave_one_in_any_language(language: str) -> None:
    result = deduplicate([SAMPLES[language]] * 1000)
    assert np.flatnonzero(result.decisions.kept).tolist() == [0]
    assert len(result.candidates.pairs) == 0


def test_a_thousand_near_copies_are_compared_with_at_most_64_each_a_band() -> None:
    body = prose(9, 120)
    texts = [" ".join([*body, f"number{i}"]) for i in range(1000)]
    result = deduplicate(texts)
    # Shingles: 116 of the body and one of their own: 116 / 118 for every pair.
    assert np.flatnonzero(result.decisions.kept).tolist() == [0]
    assert (result.decisions.similarity[1:] == 116 / 118).all()
    assert result.candidates.capped_buckets > 0
    assert 63 * 936 < len(result.candidates.pairs) < 3 * 64 * 1000  # of 499,500
