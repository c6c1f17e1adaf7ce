"""Tests of opening a project: waivers must name gates that there are."""

from pathlib import Path

import pytest

from corpus_platform.config import Settings
from corpus_platform.errors import SettingsError
from corpus_platform.settings_file import load_settings
from corpus_platform.stages.chain import open_project


def _settings(folder: Path, *gates: str) -> Settings:
    path = folder / "corpus.yaml"
    waivers = "".join(f"  - {{gate: {g}, reason: because, expires: 2027-01-31}}\n" for g in gates)
    path.write_text(f"sources: [{{glob: '{{crawl}}/*'}}]\nwaivers:\n{waivers}", encoding="utf-8")
    return load_settings(path)


def test_a_waiver_of_a_gate_alone_or_with_its_asset_is_taken(tmp_path: Path) -> None:
    open_project(_settings(tmp_path, "sha256", "shuffled_bins/sha256", "leaks", "whole"))


@pytest.mark.parametrize(
    ("gate", "partition", "words"),
    [
        ("no_loss_ranges", None, "is a gate of single shards: name the one it is for, as "),
        ("raw_shards/sha256", None, "is a gate of single shards: name the one it is for, as "),
        ("shrunk", "c/a", "is a gate over the whole corpus, not of a shard: leave 'c/a' out"),
    ],
)
def test_a_waiver_that_holds_for_nothing_is_refused(
    gate: str, partition: str | None, words: str, tmp_path: Path
) -> None:
    settings = _settings(tmp_path, "whole", gate)
    taken, other = settings.waivers
    waivers = (taken, other.model_copy(update={"partition": partition}))
    with pytest.raises(SettingsError) as refusal:
        open_project(settings.model_copy(update={"waivers": waivers}))
    assert str(refusal.value).startswith(f"waivers.1.partition: {gate} {words}")


def test_a_waiver_of_one_shard_is_taken_where_any_asset_judges_shards_so(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "sha256", "not_empty")
    waivers = tuple(w.model_copy(update={"partition": "c/a"}) for w in settings.waivers)
    open_project(settings.model_copy(update={"waivers": waivers}))


@pytest.mark.parametrize("gate", ["kept_shar", "raw_shards/ledger", "nothing/sha256"])
def test_a_waiver_of_a_gate_that_there_is_not_is_refused_with_those_there_are(
    gate: str, tmp_path: Path
) -> None:
    with pytest.raises(SettingsError) as refusal:
        open_project(_settings(tmp_path, "whole", gate))
    words = str(refusal.value)
    assert words.startswith(f"waivers.1.gate: no gate {gate!r}; gates are bands, byte_alphabet, ")
    assert ", kept_share, " in words


@pytest.mark.parametrize(
    ("gate", "way_out"),
    [
        ("source_unchanged", "restore the source, or take its bytes: corpus lock --accept SHARD"),
        ("raw_shards/source_present", "restore the source"),
        ("lock", "restore the locked bytes, or take the present ones: corpus lock --accept SHARD"),
        ("intact", "corpus run makes it again"),
        ("packed_bins/current", "corpus run makes it"),
    ],
)
def test_a_refusal_that_no_numbers_decide_cannot_be_waived(
    gate: str, way_out: str, tmp_path: Path
) -> None:
    words = f"waivers.0.gate: {gate!r} is not judged by numbers and cannot be waived; {way_out}"
    with pytest.raises(SettingsError) as refusal:
        open_project(_settings(tmp_path, gate))
    assert str(refusal.value) == words
