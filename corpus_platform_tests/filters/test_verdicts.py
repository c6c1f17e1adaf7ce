import gzip
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from backports import zstd

from corpus_platform.config import CleanSettings
from corpus_platform.filters.batch import Batch
from corpus_platform.filters.verdicts import Verdicts, cost_of_faults, judge
from corpus_platform.rule_settings import RuleSettings
from corpus_platform_tests.filters import plain

GOOD = (
    "The bridge across the river was built by local workers over three summers, and most of the"
    " stone came from a quarry that has since been closed. People still use it every day to reach"
    " the market, the school and the small station on the other side."
)
ZH = (
    "北京的春天常有大风天气，老人们喜欢在公园里散步，孩子们在湖边放风筝。"
    "远处的山上开满了桃花，游客从各地赶来拍照留念。"
    "傍晚时分，街边的小店亮起灯火，卖着热腾腾的豆浆和包子。"
    "人们围坐在一起聊着家常，直到夜深才慢慢散去。"
)
HI = "नदी के किनारे छोटी सी दुकान में किताबें बिकती थीं और बच्चे वहाँ रोज़ कहानियाँ पढ़ते थे। " * 4
AR = ("قَرَأَتِ الْمُعَلِّمَةُ قِصَّةً قَصِيرَةً، ثُمَّ كَتَبَ الطُّلَّابُ أَسْمَاءَهُمْ عَلَى الْوَرَقِ وَذَهَبُوا إِلَى بُيُوتِهِمْ مُبَكِّرِينَ. ") * 4

# Each trips the rule of its name and no other; all are long enough and plain English but for it.
ONLY = {
    "too_short": GOOD[:199],
    "dup_lines": "\n".join([GOOD, GOOD]),
    "char_repeat": GOOD + "=" * 51,
    "low_alnum": GOOD + " -=" * 100,
    "low_lang_confidence": "xq zvw kjh plm wrt bnv czx qpl " * 8,
}


def _rules(preset: str = "web", **changes) -> dict[str, RuleSettings]:
    values = {key.replace("__", "."): value for key, value in changes.items()}
    return CleanSettings.model_validate({"preset": preset, "set": values}).rules()


def _judge(*texts: str, rules: dict[str, RuleSettings], lang: str | None = None) -> Verdicts:
    return judge(Batch(texts, [lang] * len(texts), [None] * len(texts)), rules)


@pytest.mark.parametrize("preset", ["web", "source_document"])
@pytest.mark.parametrize("name", ONLY)
def test_cl_01_each_rule_drops_the_one_document_that_trips_only_it(name, preset):
    verdicts = _judge(ONLY[name], GOOD, rules=_rules(preset))
    assert verdicts.hits == dict.fromkeys(ONLY, 0) | {name: 1}
    assert verdicts.dropped == verdicts.hits
    assert verdicts.kept.tolist() == [False, True]


def test_cl_02_chinese_is_measured_in_characters_not_in_words():
    assert _judge(ZH, rules=_rules(too_short__min_chars=100)).kept.tolist() == [True]
    assert _judge(ZH * 2, rules=_rules()).kept.tolist() == [True]


def test_cl_03_paragraphs_survive_web_and_not_the_source_document():
    text = "\n\n".join(f"{GOOD} Chapter {n}." for n in range(10))
    assert _judge(text, rules=_rules()).kept.tolist() == [True]
    assert _judge(text, rules=_rules("source_document")).dropped["dup_lines"] == 1


def test_cl_05_texts_without_content_are_judged_without_a_division_by_zero():
    texts = ["", "   ", "\n\n", "\u00a0\u3000", "\u200b\u200b", "\ufeff", "!!!", GOOD]
    verdicts = _judge(*texts, rules=_rules())
    assert verdicts.dropped == dict.fromkeys(ONLY, 0) | {"too_short": 7}
    assert verdicts.kept.tolist() == [False] * 7 + [True]


def test_lid_02_little_evidence_is_dropped_as_too_short_and_not_for_a_language():
    verdicts = _judge("SERVICE DEPLOYMENT CHECKLIST", "OK", "12345", "", rules=_rules())
    assert verdicts.dropped == dict.fromkeys(ONLY, 0) | {"too_short": 4}
    assert verdicts.lang == ["en", "und", "und", "und"]


@pytest.mark.parametrize("text", [HI, AR], ids=["Hindi", "vowelled Arabic"])
def test_scripts_with_marks_survive_web_and_not_the_source_document(text):
    assert _judge(text, rules=_rules()).kept.tolist() == [True]
    assert _judge(text, rules=_rules("source_document")).dropped["low_alnum"] == 1


def test_the_first_rule_in_order_owns_the_drop_and_every_rule_counts():
    text = "= =\n" * 2 + "=" * 60
    rules = _rules()
    forward = _judge(text, rules=rules)
    backward = _judge(text, rules=dict(reversed(rules.items())))
    assert forward.hits == dict.fromkeys(ONLY, 1)
    assert forward.dropped == dict.fromkeys(ONLY, 0) | {"too_short": 1}
    assert backward.dropped == dict.fromkeys(ONLY, 0) | {"low_lang_confidence": 1}


def test_a_drop_has_the_value_and_the_threshold_of_its_rule_and_a_kept_one_has_none():
    verdicts = _judge("a" * 70, ONLY["char_repeat"], GOOD, rules=_rules())
    assert verdicts.rule.tolist() == [0, 2, -1]
    assert np.array_equal(verdicts.value, [70.0, 51.0, np.nan], equal_nan=True)
    assert np.array_equal(verdicts.threshold, [200.0, 50.0, np.nan], equal_nan=True)


def test_without_rules_all_is_kept_and_languages_are_told():
    verdicts = _judge("", GOOD, rules=_rules("none"))
    assert verdicts.kept.tolist() == [True, True]
    assert (verdicts.hits, verdicts.dropped) == ({}, {})
    assert verdicts.lang == ["und", "en"]


def test_an_empty_batch_has_empty_verdicts():
    verdicts = _judge(rules=_rules())
    assert verdicts.rule.tolist() == []
    assert verdicts.dropped == dict.fromkeys(ONLY, 0)


def test_the_cost_of_the_faults_is_what_the_repaired_rules_would_not_hit():
    paragraphs = "\n\n".join(f"{GOOD} Chapter {n}." for n in range(10))
    batch = Batch(
        [paragraphs, ONLY["dup_lines"], HI, AR, ONLY["low_alnum"]], [None] * 5, [None] * 5
    )
    assert cost_of_faults(batch, _rules("source_document")) == {"dup_lines": 1, "low_alnum": 2}
    assert cost_of_faults(batch, _rules("web")) == {}


def test_columns_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="2 texts, 1 langs, 2 urls"):
        Batch(["a", "b"], [None], [None, None])


@pytest.fixture(scope="module")
def documents(shared: Path) -> list[dict]:
    """250 real documents of each of the eight languages of the corpus."""
    chosen, taken = [], Counter()
    for shard in json.loads((shared / "corpus" / "shards.json").read_text())["shards"]:
        if shard["file"].endswith(".warc.wet.gz"):
            continue
        for record in _records(shared / "corpus" / shard["file"]):
            lang = record.get("lang")
            if lang and taken[lang] < 250:
                taken[lang] += 1
                chosen.append(record)
        if len(taken) == 8 and len(chosen) == 2000:
            return chosen
    raise AssertionError(f"the corpus has too few documents of some language: {taken}")


def _records(path: Path) -> list[dict]:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    raw = path.read_bytes()
    if path.suffix == ".gz":
        raw = gzip.decompress(raw)
    elif path.suffix == ".zst":
        options = {zstd.DecompressionParameter.window_log_max: 27}
        raw = zstd.ZstdFile(io.BytesIO(raw), options=options).read()
    return [json.loads(line) for line in raw.split(b"\n") if line]


@pytest.mark.parametrize(
    ("preset", "count_blank", "count_marks"),
    [("web", False, True), ("source_document", True, False)],
)
def test_2000_real_documents_fall_to_the_same_rule_as_by_the_plain_definition(
    documents, preset, count_blank, count_marks
):
    texts = [record["text"] for record in documents]
    rules = _rules(preset)
    del rules["low_lang_confidence"]
    verdicts = _judge(*texts, rules=rules, lang="given")
    names = [*verdicts.names, "kept"]
    expected = [
        plain.first_hit(text, count_blank=count_blank, count_marks=count_marks) for text in texts
    ]
    assert [names[index] for index in verdicts.rule] == expected
