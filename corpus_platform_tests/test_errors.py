"""Tests of the exception tree: exit codes, messages, and the way through a pickle."""

import pickle

import pytest

from corpus_platform import errors
from corpus_platform.errors import (
    Busy,
    CorpusError,
    DamagedShard,
    EngineFailed,
    EnginesDiffer,
    MissingExtra,
    SettingsError,
    StageFailed,
    StorageError,
    Uncleared,
    UsageError,
)

SHARD = "2026-40/part-00000.jsonl.gz"
REFUSED = Uncleared("cleaned_documents", SHARD, gate="kept_share", reason="kept 0.1, limit 0.25")
DAMAGED = DamagedShard(SHARD, reason="the stream ends early", offset=4711)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("x"), 2),
        (UsageError("x"), 2),
        (MissingExtra("x"), 2),
        (REFUSED, 1),
        (DAMAGED, 1),
        (Busy("x"), 3),
        (StageFailed("x"), 3),
        (EngineFailed("x"), 3),
        (EnginesDiffer("x", 2), 3),
        (StorageError("x"), 3),
        (CorpusError("x"), 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_error_has_the_exit_code_of_its_kind(error: CorpusError, code: int) -> None:
    assert error.exit_code == code


def test_a_refusal_names_asset_partition_gate_and_reason() -> None:
    assert str(REFUSED) == f"cleaned_documents[{SHARD}]: kept_share: kept 0.1, limit 0.25"
    whole = Uncleared("dedup_clusters", None, gate="twins", reason="2 without")
    assert str(whole) == "dedup_clusters: twins: 2 without"


def test_a_damaged_shard_is_a_refusal_by_the_gate_readable() -> None:
    assert isinstance(DAMAGED, Uncleared)
    assert (DAMAGED.partition, DAMAGED.gate, DAMAGED.offset) == (SHARD, "readable", 4711)
    assert str(DAMAGED) == f"cleaned_documents[{SHARD}]: readable: the stream ends early"


@pytest.mark.parametrize(
    "error",
    [REFUSED, DAMAGED, StorageError("a: b"), SettingsError("c"), Busy("d"), EnginesDiffer("e", 3)],
    ids=repr,
)
def test_an_error_comes_out_of_a_pickle_as_it_went_in(error: CorpusError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_all_errors_are_in_one_tree_and_exported() -> None:
    kinds = {n for n, v in vars(errors).items() if isinstance(v, type) and not n.startswith("_")}
    assert kinds == set(errors.__all__) - {"place", "split_place"}
    assert all(issubclass(getattr(errors, name), CorpusError) for name in kinds)
    assert all(f" {name} " in str(errors.__doc__) for name in kinds - {"CorpusError"})


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("tokenizer", ("tokenizer", None)),
        ("packed_bins[2026-40/a.jsonl]", ("packed_bins", "2026-40/a.jsonl")),
        ("packed_bins[2026-40/a[1]]", ("packed_bins", "2026-40/a[1]")),
        ("packed_bins[2026-40/[[x]]]", ("packed_bins", "2026-40/[[x]]")),
    ],
)
def test_a_name_of_a_place_is_taken_apart_at_its_own_brackets(
    name: str, parts: tuple[str, str | None]
) -> None:
    assert errors.split_place(name) == parts
    assert errors.place(*parts) == name
