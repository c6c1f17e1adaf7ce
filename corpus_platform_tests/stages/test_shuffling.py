"""The two-phase shuffle is one sort by keys, whatever the ranges, workers and crashes."""

import dataclasses
import hashlib
import resource
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpus_platform.errors import StageFailed, StorageError
from corpus_platform.formats.token_bin import TokenBin, open_token_bin
from corpus_platform.formats.token_bin_writer import Policy
from corpus_platform.formats.token_rows import row
from corpus_platform.packing.placement import Placement
from corpus_platform.packing.shuffle import document_keys
from corpus_platform.stages import shuffle_gather, shuffling
from corpus_platform.stages.bins_writing import Batch, Packing, write_bins
from corpus_platform.stages.release_hashes import hashed, hashed_windows
from corpus_platform.stages.shuffle_scatter import scatter
from corpus_platform.stages.shuffle_units import Level
from corpus_platform.stages.shuffling import (
    LinesWriter,
    PackedShard,
    Shuffle,
    Shuffled,
    shuffle_split,
)
from corpus_platform.tokenization.documents import EncodedDocuments

POLICY = Policy(5_000, "5e" * 32, eos_id=0)
ROWS = POLICY._replace(pad_id=1)
NAMES = ["2026-40/a", "2026-40/b", "2026-44/c"]
Document = tuple[str, int, tuple[int, ...], tuple[int, ...]]  # shard, row, tokens, mask


def _corpus(seed: int = 3) -> dict[str, list[np.ndarray]]:
    """Return documents of three shards, of ids that differ within 4,000 tokens; one is longer."""
    random = np.random.default_rng(seed)
    corpus, first = {}, 0
    for name, count in zip(NAMES, (40, 0, 25), strict=True):
        documents = []
        for number in range(count):
            length = 300 if number == 7 else int(random.integers(1, 60))
            documents.append((np.arange(first, first + length) % 4_000 + 2).astype(np.uint32))
            first += length
        corpus[name] = documents
    return corpus


def _pack(
    folder: Path,
    corpus: dict[str, list[np.ndarray]],
    *,
    packing: Packing = Packing("concat", None, None),  # noqa: B008 - never changed
    policy: Policy = POLICY,
    masked: bool = True,
) -> list[PackedShard]:
    packed = []
    for shard, documents in corpus.items():
        home = folder / shard.replace("/", "-")
        home.mkdir(parents=True)
        rows = np.arange(len(documents))
        columns = pa.record_batch(
            {"id": pa.array([f"d{r}" for r in rows], pa.string()), "lang": pa.nulls(len(rows), pa.string())}
        )  # fmt: skip
        flat = np.concatenate([np.zeros(0, np.uint32), *documents])
        ends = np.cumsum([len(d) for d in documents], dtype=np.int64)
        # The documents with an even row have a token in their middle that does not count.
        loss = np.ones(len(flat), np.bool_)
        if masked:
            silent = [int(e) - 1 - len(d) // 2 for e, d in zip(ends, documents, strict=True)][::2]
            loss[silent] = 0
        table = write_bins(
            home,
            shard,
            [Batch(rows, np.zeros(len(rows), np.bool_), columns)] if len(rows) else [],
            encode=lambda _, f=flat, e=ends, m=loss: EncodedDocuments(f, e, m),
            policy=policy,
            packing=packing,
        )
        pq.write_table(table, home / "documents.parquet")
        packed.append(PackedShard(shard, home, home / "documents.parquet"))
    return packed


def _how(scratch: Path, unit: str = "documents", tokens: int = 0, **changes: int) -> Shuffle:
    scratch.mkdir(parents=True, exist_ok=True)
    usual = Shuffle(42, Level(unit, tokens), 700, 1, 1 << 30, 1, scratch)  # ty: ignore[invalid-argument-type]
    return dataclasses.replace(usual, **changes)


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _shuffle(folder: Path, shards: Sequence[PackedShard], how: Shuffle) -> pl.DataFrame:
    _split(folder, shards, how)
    return pl.read_parquet(folder / "documents.parquet")


def _split(folder: Path, shards: Sequence[PackedShard], how: Shuffle) -> Shuffled:
    with LinesWriter(_made(folder) / "documents.parquet") as lines:
        return shuffle_split(folder, "train", shards, how, lines=lines, told=lambda _: None)


def _hashes(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


def _documents(folder: Path, listed: pl.DataFrame, dtype: str = "<u2") -> list[Document]:
    """Return every line of a table with its tokens and their mask, by numpy alone."""
    found = []
    for file, start, count, shard, number in listed.select("file", "start", "tokens", "shard", "row").iter_rows():  # fmt: skip
        tokens = np.fromfile(folder / file, dtype)[start : start + count]
        mask = (folder / file).with_suffix(".loss")
        loss = np.fromfile(mask, "u1") if mask.exists() else np.ones(10**6, np.uint8)
        found.append(
            (shard, number, tuple(tokens.tolist()), tuple(loss[start : start + count].tolist()))
        )
    return found  # fmt: skip


def _wanted(shards: Sequence[PackedShard]) -> list[Document]:
    """Sort all documents by their keys, in memory: the slow obvious version."""
    keyed = []
    for number, shard in enumerate(shards):
        listed = pl.read_parquet(shard.documents)
        keys = document_keys(42, shard.name, listed["row"].to_numpy()).tolist()
        for key, document in zip(keys, _documents(shard.folder, listed), strict=True):
            keyed.append((key, number, document))
    return [document for *_, document in sorted(keyed)]


def test_documents_come_in_the_order_of_their_keys_with_their_masks(tmp_path: Path) -> None:
    shards = _pack(tmp_path / "packed", _corpus())
    listed = _shuffle(tmp_path / "out", shards, _how(tmp_path / "s"))
    assert _documents(tmp_path / "out", listed) == _wanted(shards)
    assert listed["file"].n_unique() > 2
    for name in listed["file"].unique().to_list():
        bin_ = open_token_bin(tmp_path / "out", name.removesuffix(".bin"))
        part = listed.filter(pl.col("file") == name)
        assert bin_.ends.tolist() == (part["start"] + part["tokens"]).to_list()


CASES = [
    ("documents", 0, Packing("concat", None, None), POLICY),
    ("chunks", 100, Packing("concat", None, None), POLICY),
    ("windows", 33, Packing("concat", None, None), POLICY),
    ("documents", 0, Packing("best_fit", 64, None), ROWS),
]


@pytest.mark.parametrize(("unit", "tokens", "packing", "policy"), CASES)
def test_neither_ranges_nor_bands_nor_what_is_there_already_change_a_byte(
    unit: str,
    tokens: int,
    packing: Packing,
    policy: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shards = _pack(tmp_path / "packed", _corpus(), packing=packing, policy=policy)
    _shuffle(tmp_path / "one", shards, _how(tmp_path / "s1", unit, tokens))
    monkeypatch.setattr(shuffling, "BAND_BYTES", 200)  # shards are sorted in bands
    _shuffle(tmp_path / "many", shards, _how(tmp_path / "s2", unit, tokens, bucket_bytes=64))
    assert (tmp_path / "s2" / "train-000000" / "bands").stat().st_size > 8 * 8
    _shuffle(tmp_path / "again", shards, _how(tmp_path / "s2", unit, tokens, bucket_bytes=1000))
    assert _hashes(tmp_path / "one") == _hashes(tmp_path / "many") == _hashes(tmp_path / "again")


@pytest.mark.parametrize("workers", [2, 8])
def test_several_workers_write_the_same_bytes(workers: int, tmp_path: Path) -> None:
    shards = _pack(tmp_path / "packed", _corpus())
    _shuffle(tmp_path / "one", shards, _how(tmp_path / "s1"))
    _shuffle(tmp_path / "more", shards, _how(tmp_path / "s2", workers=workers, bucket_bytes=50))
    assert len(_hashes(tmp_path / "one")) > 7
    assert _hashes(tmp_path / "one") == _hashes(tmp_path / "more")


@pytest.mark.parametrize("workers", [1, 2])
def test_headers_say_what_the_files_hash_to(workers: int, tmp_path: Path) -> None:
    shards = _pack(tmp_path / "packed", _corpus())
    made = _split(tmp_path / "out", shards, _how(tmp_path / "s", workers=workers, bucket_bytes=500))
    hashes = _hashes(tmp_path / "out")
    assert len(made.headers) > 2
    for name, header in made.headers.items():
        for end in ("bin", "index", "loss"):
            assert getattr(header, end).sha256 == hashes.pop(f"{name}.{end}")
        assert hashes.pop(f"{name}.json")
    assert list(hashes) == ["documents.parquet"]


def _pieces(folder: Path, listed: pl.DataFrame, dtype: str = "<u2") -> dict[tuple[str, int], tuple]:
    whole: dict[tuple[str, int], tuple] = {}
    ordered = listed.sort("shard", "row", "offset")
    for shard, number, tokens, mask in _documents(folder, ordered, dtype):
        before = whole.get((shard, number), ((), ()))
        whole[shard, number] = (before[0] + tokens, before[1] + mask)
    return whole


@pytest.mark.parametrize(("unit", "tokens", "packing", "policy"), CASES)
def test_every_document_is_there_once_and_whole(
    unit: str, tokens: int, packing: Packing, policy: Policy, tmp_path: Path
) -> None:
    shards = _pack(tmp_path / "packed", _corpus(), packing=packing, policy=policy)
    listed = _shuffle(tmp_path / "out", shards, _how(tmp_path / "s", unit, tokens))
    packed = _packed_pieces(shards)
    assert _pieces(tmp_path / "out", listed) == packed
    assert len(packed) == 65


def _packed_pieces(
    shards: Sequence[PackedShard], dtype: str = "<u2"
) -> dict[tuple[str, int], tuple]:
    packed = {}
    for shard in shards:
        packed |= _pieces(shard.folder, pl.read_parquet(shard.documents), dtype)
    return packed


def test_blocks_hold_neighbours_and_keep_the_last_of_a_shard(tmp_path: Path) -> None:
    shards = _pack(tmp_path / "packed", _corpus())
    listed = _shuffle(tmp_path / "out", shards, _how(tmp_path / "s", "chunks", 100))
    following = (listed["row"].diff() == 1) & (listed["shard"] == listed["shard"].shift())
    assert 30 < following.sum() < 60  # alone they would be about one
    assert len(listed) == 65


def _windows(folder: Path) -> list[TokenBin]:
    return [open_token_bin(folder, p.stem) for p in sorted(folder.glob("train-*.json"))]


def test_windows_are_rows_of_the_stream_and_only_the_last_of_a_shard_is_filled_up(
    tmp_path: Path,
) -> None:
    shards = _pack(tmp_path / "packed", _corpus())
    _shuffle(tmp_path / "out", shards, _how(tmp_path / "s", "windows", 33))
    streams = [np.fromfile(s.folder / "train.bin", "<u2").tolist() for s in shards]
    wanted = [tuple((s + [1] * 32)[a : a + 33]) for s in streams for a in range(0, len(s), 33)]
    rows = [row(bin_, i) for bin_ in _windows(tmp_path / "out") for i in range(bin_.header.rows)]
    assert sorted(tuple(r.tokens.tolist()) for r in rows) == sorted(wanted)
    assert [tuple(r.tokens.tolist()) for r in rows] != wanted
    filled = [r for r in rows if r.padding.any()]
    assert len(filled) == sum(len(s) % 33 > 0 for s in streams)
    for one in rows:
        assert not one.loss[one.padding].any()
        assert [o for o in one.offset.tolist()[1:] if o] == []  # only a first piece goes on


def test_a_new_shard_only_inserts_documents(tmp_path: Path) -> None:
    corpus = _corpus()
    before = _shuffle(
        tmp_path / "old", _pack(tmp_path / "p1", dict(list(corpus.items())[:2])), _how(tmp_path / "s1")
    )  # fmt: skip
    after = _shuffle(tmp_path / "new", _pack(tmp_path / "p2", corpus), _how(tmp_path / "s2"))
    old = after.filter(pl.col("shard") != NAMES[2])
    assert old.select("shard", "row").rows() == before.select("shard", "row").rows()


def test_a_corpus_without_a_document_has_one_empty_file(tmp_path: Path) -> None:
    shards = _pack(tmp_path / "packed", {NAMES[0]: [], NAMES[1]: []})
    listed = _shuffle(tmp_path / "out", shards, _how(tmp_path / "s"))
    assert len(listed) == 0
    assert (tmp_path / "out" / "train-00000.bin").stat().st_size == 0
    assert len(open_token_bin(tmp_path / "out", "train-00000")) == 0


def test_a_document_longer_than_a_file_gets_its_own_and_is_counted(tmp_path: Path) -> None:
    shards = _pack(tmp_path / "packed", _corpus())
    how = _how(tmp_path / "s", max_tokens_per_file=200)
    found = _split(tmp_path / "out", shards, how)
    sizes = [header.tokens for header in found.headers.values()]
    assert found.oversized == 2  # one a shard, of 301 tokens
    assert sorted(sizes)[-3:] == [sorted(sizes)[-3], 301, 301]
    assert sorted(sizes)[-3] <= 200


def test_shards_of_two_ways_of_packing_are_refused_by_name(tmp_path: Path) -> None:
    corpus = _corpus()
    stream = _pack(tmp_path / "a", {NAMES[0]: corpus[NAMES[0]]})
    rows = _pack(
        tmp_path / "b", {NAMES[2]: corpus[NAMES[2]]}, packing=Packing("pad", 64, None), policy=ROWS
    )
    with pytest.raises(StageFailed, match=r"2026-44/c is packed as .*; one release has"):
        _shuffle(tmp_path / "out", [*stream, *rows], _how(tmp_path / "s"))


def test_what_lies_between_the_passes_and_was_cut_is_named(tmp_path: Path) -> None:
    shards, how = _pack(tmp_path / "packed", _corpus()), _how(tmp_path / "s")
    _shuffle(tmp_path / "out", shards, how)
    path = tmp_path / "s" / "train-000002" / "tokens"
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(StorageError, match=r"train-000002/tokens: it ends at byte \d+; remove"):
        _shuffle(tmp_path / "again", shards, how)


def test_a_shard_that_the_scratch_disk_has_no_room_for_leaves_nothing_there(
    tmp_path: Path,
) -> None:
    """As much fits as the lines of 40 documents and their end, 40 bytes each, and not their units."""
    documents = [np.array([i + 2], np.uint32) for i in range(40)]
    shards, how = _pack(tmp_path / "packed", {NAMES[0]: documents}), _how(tmp_path / "s")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (41 * 40, hard))
    try:
        with pytest.raises(
            StorageError, match=r"train-000000\.part: cannot be written: .*too large"
        ):
            _shuffle(tmp_path / "out", shards, how)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert not [*(tmp_path / "s").iterdir()]
    assert len(_shuffle(tmp_path / "again", shards, how)) == 40


@pytest.mark.parametrize(("unit", "tokens", "packing", "policy"), CASES)
def test_long_pieces_which_are_mapped_give_the_same_bytes(
    unit: str,
    tokens: int,
    packing: Packing,
    policy: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Some pieces are longer than 200 bytes and some not; ids are of 4 bytes; not all have a mask."""
    policy = policy._replace(vocab_size=200_000)
    corpus = {shard: [d * 40 for d in found] for shard, found in _corpus().items()}
    masked = {NAMES[0]: corpus[NAMES[0]], NAMES[1]: []}
    bare = {NAMES[2]: corpus[NAMES[2]]}
    shards = _pack(tmp_path / "a", masked, packing=packing, policy=policy)
    shards += _pack(tmp_path / "b", bare, packing=packing, policy=policy, masked=False)
    _shuffle(tmp_path / "read", shards, _how(tmp_path / "s1", unit, tokens, bucket_bytes=600))
    monkeypatch.setattr(shuffle_gather, "LONG", 200)
    listed = _shuffle(
        tmp_path / "mapped", shards, _how(tmp_path / "s2", unit, tokens, bucket_bytes=600)
    )
    assert _hashes(tmp_path / "read") == _hashes(tmp_path / "mapped")
    pieces = _pieces(tmp_path / "mapped", listed, "<u4")
    assert pieces == _packed_pieces(shards, "<u4")
    assert [sum(0 in mask for (s, _), (_, mask) in pieces.items() if s == n) for n in NAMES] == [20, 0, 0]  # fmt: skip


def test_a_mask_that_is_gone_is_no_mask_of_ones(tmp_path: Path) -> None:
    shards, how = _pack(tmp_path / "packed", _corpus()), _how(tmp_path / "s")
    _shuffle(tmp_path / "out", shards, how)
    (tmp_path / "s" / "train-000002" / "loss").unlink()
    with pytest.raises(StorageError, match=r"train-000002/loss: cannot be read"):
        _shuffle(tmp_path / "again", shards, how)


def test_many_shards_are_neither_many_maps_nor_many_open_files(tmp_path: Path) -> None:
    shards = [s._replace(name=f"2026-40/{i}") for i in range(200) for s in _few(tmp_path)]
    how = _how(tmp_path / "s")
    tasks = shuffling.scatters("train", shards, how)
    for task in tasks:
        scatter(task)
    bands = shuffling._bands(tasks)
    plan = shuffling._plan(bands, how)
    (task,) = shuffling._gathers(bands, plan, shuffling._files(_made(tmp_path / "o"), "train", POLICY, None, plan))  # fmt: skip
    before = _maps()
    held = shuffle_gather._held(task, shuffle_gather._range(task.folders, task.first, task.after))
    assert len(held.lines.at) == 400
    assert _maps() - before < 50


def _few(folder: Path) -> list[PackedShard]:
    home = folder / "packed"
    if home.exists():
        return [PackedShard("", home / "few", home / "few" / "documents.parquet")]
    return _pack(home, {"few": [np.array([5, 6], np.uint32), np.array([7], np.uint32)]})


def _maps() -> int:
    return len(Path("/proc/self/maps").read_text(encoding="utf-8").splitlines())


def test_sh_05_a_shard_that_keeps_nothing_adds_nothing(tmp_path: Path) -> None:
    corpus = _corpus()
    assert len(corpus[NAMES[1]]) == 0
    with_empty = _shuffle(tmp_path / "a", _pack(tmp_path / "p1", corpus), _how(tmp_path / "s1"))
    del corpus[NAMES[1]]
    without = _shuffle(tmp_path / "b", _pack(tmp_path / "p2", corpus), _how(tmp_path / "s2"))
    assert with_empty.rows() == without.rows()


def test_sh_06_a_number_of_documents_that_no_block_divides_loses_none(tmp_path: Path) -> None:
    documents = [np.full(10, i + 2, np.uint32) for i in range(103)]
    shards = _pack(tmp_path / "packed", {NAMES[0]: documents})
    how = _how(tmp_path / "s", "chunks", 110)  # ten documents of eleven tokens
    listed = _shuffle(tmp_path / "out", shards, how)
    assert sorted(listed["row"].to_list()) == list(range(103))
    starts = listed["row"].to_numpy()[
        np.flatnonzero(np.diff(listed["row"].to_numpy(), prepend=-9) != 1)
    ]
    assert set((starts % 10).tolist()) == {0}  # fmt: skip


def test_a_range_of_a_shard_takes_some_bytes_and_not_some_hundred(tmp_path: Path) -> None:
    units = np.zeros((500, 257), np.int64)
    bands = [shuffling._Band(f"2026-40/{i}", tmp_path, 0, 0) for i in range(500)]
    plan = shuffling._Plan(units, [[]] * 256, Placement(1), [], [], [])
    tracemalloc.start()
    try:
        ranges = shuffling._gathers(bands, plan, [])
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(ranges) == 256
    assert held < 500 * 256 * 2  # beside the 8 of `units`; as lists of numbers it was 96


EMPTY = {"2026-40/a": [[], [5, 6, 7], [], [8, 9], []], "2026-40/b": [[]], "2026-44/c": [[3]]}
BARE = ROWS._replace(eos_id=None)  # no control token makes documents longer


def _with_empty(folder: Path, packing: Packing, policy: Policy) -> list[PackedShard]:
    corpus = {s: [np.array(d, np.uint32) for d in found] for s, found in EMPTY.items()}
    return _pack(folder, corpus, packing=packing, policy=policy, masked=False)


@pytest.mark.parametrize(
    ("packing", "policy", "unit", "lines"),
    [
        ("concat", BARE._replace(pad_id=None), "documents", [(0, 0), (0, 0), (0, 2), (0, 3), (0, 0), (0, 0), (0, 1)]),
        ("concat", BARE._replace(pad_id=None), "windows", [(0, 1), (0, 1), (0, 3), (1, 1)]),
        ("best_fit", BARE, "documents", [(0, 1), (0, 2), (0, 3)]),
        ("pad", BARE, "documents", [(0, 1), (0, 2), (0, 3)]),
    ],
)  # fmt: skip
def test_a_document_without_a_token_has_no_place_in_a_row_or_a_window(
    packing: str, policy: Policy, unit: str, lines: list[tuple[int, int]], tmp_path: Path
) -> None:
    shards = _with_empty(tmp_path, Packing(packing, 4 if policy.pad_id else None, None), policy)
    listed = _shuffle(tmp_path / "out", shards, _how(tmp_path / "scratch", unit, 4))
    assert sorted(listed.select("offset", "tokens").rows()) == sorted(lines)


def test_the_audit_cuts_documents_without_a_token_as_the_shuffle_does(tmp_path: Path) -> None:
    shards = _with_empty(tmp_path, Packing("concat", None, None), BARE._replace(pad_id=None))
    how = _how(tmp_path / "scratch", "windows", 4)
    made = _split(tmp_path / "out", shards, how)
    number = pl.col("shard").replace_strict(
        {s: i for i, s in enumerate(EMPTY)}, return_dtype=pl.Int32
    )
    listed = pl.read_parquet(tmp_path / "out" / "documents.parquet").with_columns(number)
    found = hashed(open_token_bin(tmp_path / "out", "train-00000"), "train", listed)
    packed = [
        hashed_windows(open_token_bin(s.folder, "train"), "train", pl.read_parquet(s.documents).filter(pl.col("file") == "train.bin").with_columns(number), 4)
        for s in shards
    ]  # fmt: skip
    assert pl.concat(packed).sort(found.columns).equals(found.sort(found.columns))
    assert made.empty == 4
