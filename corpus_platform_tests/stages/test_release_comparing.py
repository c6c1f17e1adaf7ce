"""A release held against its packs: whatever is damaged is counted as a comparison in memory would."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from corpus_platform.document import PACKED_DOCUMENTS, RELEASE_DOCUMENTS
from corpus_platform.formats.token_bin import open_token_bin, pieces_of
from corpus_platform.formats.token_bin_writer import Policy, RowBinWriter, TokenBinWriter
from corpus_platform.stages import release_comparing, release_hashes, release_lines
from corpus_platform.stages.release_comparing import Compared, Pack, compare, listed_in_both
from corpus_platform.stages.release_lines import ReleaseLines

POLICY = Policy(5_000, "5e" * 32, eos_id=None, pad_id=1)
SHARDS = ["2026-40/a", "2026-40/b", "2026-44/c"]
ROW = 6


class Piece(NamedTuple):
    """A document or a piece of one: its tokens, and which of them count."""

    shard: str
    row: int
    offset: int
    tokens: tuple[int, ...]
    mask: tuple[int, ...]


Files = dict[str, list[Piece]]


def _piece(shard: str, row: int, tokens: list[int], offset: int = 0, silent: int = -1) -> Piece:
    mask = tuple(int(i != silent) for i in range(len(tokens)))
    return Piece(shard, row, offset, tuple(tokens), mask)


def _corpus(seed: int = 1) -> dict[str, list[Piece]]:
    """Return the documents of each split; some of them have no token, or one that counts for nothing."""
    random, made = np.random.default_rng(seed), {"train": list[Piece](), "val": list[Piece]()}
    for name, count in zip(SHARDS, (14, 1, 12), strict=True):
        for row in range(count):
            tokens = random.integers(2, 5_000, 0 if row == 5 else random.integers(1, 16)).tolist()
            split = "val" if row in (3, 5, 9) else "train"
            made[split].append(_piece(name, row, tokens, silent=0 if row % 3 == 0 else -1))
    return made


def _cut(pieces: list[Piece], length: int = ROW) -> list[Piece]:
    """Cut documents into pieces of at most a row, and leave out those without tokens."""
    return [
        Piece(p.shard, p.row, p.offset + at, p.tokens[at : at + length], p.mask[at : at + length])
        for p in pieces
        for at in range(0, len(p.tokens), length)
    ]


def _windows(pieces: list[Piece]) -> list[Piece]:
    """Cut the stream of each shard after every so many tokens."""
    found, at = list[Piece](), dict[str, int]()
    for p in pieces:
        begin, place = 0, at.get(p.shard, 0)
        while begin < len(p.tokens):
            end = min(len(p.tokens), begin + ROW - (place + begin) % ROW)
            found.append(Piece(p.shard, p.row, begin, p.tokens[begin:end], p.mask[begin:end]))
            begin = end
        at[p.shard] = place + len(p.tokens)
    return found


def _write(folder: Path, base: str, pieces: list[Piece], *, rows: bool) -> list[tuple]:
    """Write a token file, a piece a row if there are rows; return the lines of the table."""
    flat = np.array([i for p in pieces for i in p.tokens], np.uint32)
    loss = np.array([i for p in pieces for i in p.mask], np.bool_)
    ends = np.cumsum([len(p.tokens) for p in pieces], dtype=np.int64)
    if not rows:
        with TokenBinWriter(folder, base, POLICY._replace(pad_id=None)) as writer:
            writer.append_many(flat, ends, loss=loss)
        starts = (ends - [len(p.tokens) for p in pieces]).tolist()
    else:
        starts = [ROW * i for i in range(len(pieces))]
        _write_rows(folder, base, pieces)
    return [(f"{base}.bin", start, len(p.tokens), p.shard, p.row, f"{p.row}", p.offset) for start, p in zip(starts, pieces, strict=True)]  # fmt: skip


def _write_rows(folder: Path, base: str, pieces: list[Piece]) -> None:
    numbers = {
        (s, r): i for i, (s, r) in enumerate(dict.fromkeys((p.shard, p.row) for p in pieces))
    }
    with RowBinWriter(folder, base, POLICY, row_tokens=ROW) as writer:
        for p in pieces:
            room = ROW - len(p.tokens)
            flat = np.array([*p.tokens, *[1] * room], np.uint16)
            entries = [(numbers[p.shard, p.row], p.offset, len(p.tokens)), (-1, 0, ROW)]
            documents, offsets, ends = np.array(entries[: 1 + (room > 0)]).T
            loss = np.array([*p.mask, *[0] * room], np.bool_)
            writer.append_rows(flat, ends, pieces_of(documents, offsets), loss=loss)


class Made(NamedTuple):
    """What was written: the folder of a release, packs, and the files that it should have had."""

    folder: Path
    packs: list[Pack]
    sound: Files

    def compare(self) -> Compared:
        """Compare what is in the folder now."""
        bins = {p.stem: open_token_bin(self.folder, p.stem) for p in sorted(self.folder.glob("*.json"))}  # fmt: skip
        return compare(bins, self.lines(), self.packs)

    def lines(self) -> ReleaseLines:
        return ReleaseLines(self.folder / "documents.parquet", SHARDS)

    def release(self, files: Mapping[str, list[Piece]], *, rows: bool) -> None:
        """Write a release anew."""
        lines = [line for base, pieces in files.items() for line in _write(self.folder, base, pieces, rows=rows)]  # fmt: skip
        self.table(pl.DataFrame(lines, schema=RELEASE_DOCUMENTS.names, orient="row"))

    def table(self, frame: pl.DataFrame) -> None:
        """Write the table anew, in row groups of a few lines."""
        table = frame.to_arrow().cast(RELEASE_DOCUMENTS)
        pq.write_table(table, self.folder / "documents.parquet", row_group_size=7)

    def alter(self, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
        """Change the table alone."""
        self.table(change(pl.read_parquet(self.folder / "documents.parquet")))


LAYOUTS = ("documents", "rows", "windows")


def _made(folder: Path, layout: str, corpus: dict[str, list[Piece]] | None = None) -> Made:
    """Write packs and a sound release in a shuffled order."""
    corpus = _corpus() if corpus is None else corpus
    of = {"documents": list[Piece], "rows": _cut, "windows": _windows}[layout]
    packs = []
    for name in SHARDS:
        home, lines = folder / name.replace("/", "-"), list[tuple]()
        home.mkdir(parents=True)
        for split, pieces in corpus.items():
            own = [p for p in pieces if p.shard == name]
            lines += _write(home, split, _cut(own) if layout == "rows" else own, rows=layout == "rows")  # fmt: skip
        frame = pl.DataFrame([(*line, None, 0) for line in lines], schema=dict(zip(PACKED_DOCUMENTS.names, [pl.String, pl.Int64, pl.Int64, pl.String, pl.Int64, pl.String, pl.Int64, pl.String, pl.Int64], strict=True)), orient="row")  # fmt: skip
        pq.write_table(frame.to_arrow().cast(PACKED_DOCUMENTS), home / "documents.parquet")
        packs.append(Pack(home, home / "documents.parquet"))
    random, sound = np.random.default_rng(7), dict[str, list[Piece]]()
    for split, pieces in corpus.items():
        moved = of(pieces)
        order = random.permutation(len(moved)).tolist()
        halves = [order[: len(order) // 2], order[len(order) // 2 :]]
        sound |= {f"{split}-{i:05d}": [moved[j] for j in half] for i, half in enumerate(halves)}
    made = Made(folder / "out", packs, sound)
    made.folder.mkdir()
    made.release(sound, rows=layout != "documents")
    return made


@pytest.fixture(autouse=True)
def _few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare one shard after the other, and read everything in small blocks."""
    monkeypatch.setattr(release_lines, "HELD_LINES", 1)
    monkeypatch.setattr(release_lines, "PASSES", 100)
    monkeypatch.setattr(release_lines, "READ_ROWS", 5)
    monkeypatch.setattr(release_hashes, "BLOCK_ENTRIES", 5)  # a train file has 10 or more


@pytest.fixture(params=LAYOUTS, scope="module")
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def made_once(layout: str, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return _made(tmp_path_factory.mktemp(layout), layout)


@pytest.fixture
def made(made_once: Made, tmp_path: Path) -> Made:
    shutil.copytree(made_once.folder, tmp_path / "out")
    return made_once._replace(folder=tmp_path / "out")


def _tokens(corpus: Mapping[str, list[Piece]]) -> int:
    return sum(len(p.tokens) for pieces in corpus.values() for p in pieces)


def test_a_sound_release_has_no_line_that_differs(made: Made) -> None:
    assert made.compare() == Compared(0, _tokens(_corpus()), 0)
    assert listed_in_both(made.lines()) == 0


def _changed(made: Made, layout: str, change: Callable[[Files], None]) -> int:
    files = {base: list(pieces) for base, pieces in made.sound.items()}
    change(files)
    made.release(files, rows=layout != "documents")
    return made.compare().differing


def _at(files: Files, base: str, tokens: int = 2) -> int:
    """Return the place of a piece of so many tokens or more."""
    return next(i for i, p in enumerate(files[base]) if len(p.tokens) >= tokens)


def test_a_changed_token_makes_a_line_missing_and_another_foreign(made: Made, layout: str) -> None:
    def change(files: Files) -> None:
        i = _at(files, "train-00001")
        piece = files["train-00001"][i]
        files["train-00001"][i] = piece._replace(tokens=(piece.tokens[0] ^ 1, *piece.tokens[1:]))

    assert _changed(made, layout, change) == 2


def test_a_changed_mask_makes_a_line_missing_and_another_foreign(made: Made, layout: str) -> None:
    def change(files: Files) -> None:
        i = _at(files, "train-00000")
        piece = files["train-00000"][i]
        files["train-00000"][i] = piece._replace(mask=(*piece.mask[:-1], 1 - piece.mask[-1]))

    assert _changed(made, layout, change) == 2


def test_a_mask_that_moves_by_a_token_is_seen(made: Made, layout: str) -> None:
    def change(files: Files) -> None:
        i = next(i for i, p in enumerate(files["train-00000"]) if p.mask[:2] == (0, 1))
        piece = files["train-00000"][i]
        files["train-00000"][i] = piece._replace(mask=(1, 0, *piece.mask[2:]))

    assert _changed(made, layout, change) == 2


def test_a_lost_line_is_missing(made: Made, layout: str) -> None:
    assert _changed(made, layout, lambda files: files["val-00000"].pop(0) and None) == 1


def test_a_doubled_line_is_foreign(made: Made, layout: str) -> None:
    def change(files: Files) -> None:
        files["train-00000"].append(files["train-00001"][0])

    assert _changed(made, layout, change) == 1


def test_a_line_in_a_file_of_the_other_kind_is_missing_and_foreign(made: Made, layout: str) -> None:
    def change(files: Files) -> None:
        files["val-00001"].append(files["train-00001"].pop())

    assert _changed(made, layout, change) == 2
    assert listed_in_both(made.lines()) == (layout != "documents" and _is_cut(made, "train-00001"))


def _is_cut(made: Made, base: str) -> bool:
    """Tell whether the document of a file's last piece has another one."""
    last = made.sound[base][-1]
    pieces = [p for files in made.sound.values() for p in files if p[:2] == last[:2]]
    return len(pieces) > 1


def test_the_tokens_of_two_shards_that_change_places_are_four_lines(
    made: Made, layout: str
) -> None:
    def change(files: Files) -> None:
        pieces = files["train-00000"]
        a = _at(files, "train-00000")
        b = next(i for i, p in enumerate(pieces) if p.shard != pieces[a].shard and p.tokens)
        one, two = pieces[a], pieces[b]
        pieces[a] = one._replace(tokens=two.tokens, mask=two.mask)
        pieces[b] = two._replace(tokens=one.tokens, mask=one.mask)

    assert _changed(made, layout, change) == 4


def test_lines_that_change_places_with_their_tokens_are_only_another_order(
    made: Made, layout: str
) -> None:
    def change(files: Files) -> None:
        one, two = files["train-00000"], files["train-00001"]
        one[0], two[0] = two[0], one[0]

    assert _changed(made, layout, change) == 0


def test_a_file_that_is_gone_is_missing_line_by_line(made: Made) -> None:
    for path in made.folder.glob("val-00000.*"):
        path.unlink()
    assert made.compare().differing == len(made.sound["val-00000"])


def test_an_offset_that_is_wrong_lies_elsewhere_and_is_missing_and_foreign(made: Made) -> None:
    made.alter(lambda t: t.with_columns(offset=pl.col("offset") + (pl.int_range(pl.len()) == 2)))
    assert made.compare().differing == 3


def test_a_start_that_is_wrong_lies_elsewhere(made: Made) -> None:
    longest = pl.col("tokens") == pl.col("tokens").max()
    first = longest & longest.cum_sum().eq(1)
    made.alter(lambda t: t.with_columns(start=pl.col("start") + first.cast(pl.Int64)))
    assert made.compare().differing == 1


def test_a_line_too_many_has_no_tokens_and_is_foreign(made: Made) -> None:
    """It lies elsewhere, too."""
    one = pl.col("file") == "train-00001.bin"
    made.alter(
        lambda t: pl.concat(
            [
                t,
                t.filter(one)
                .tail(1)
                .with_columns(start=pl.lit(9999, pl.Int64), row=pl.lit(77, pl.Int64)),
            ]
        )
    )
    assert made.compare().differing == 2


def test_all_lines_of_a_shard_that_nobody_knows_are_foreign_and_its_own_missing(
    made: Made,
) -> None:
    named = pl.when(pl.col("shard") == SHARDS[0]).then(pl.lit("2026-40/z")).otherwise("shard")
    made.alter(lambda t: t.with_columns(shard=named))
    lines = sum(p.shard == SHARDS[0] for pieces in made.sound.values() for p in pieces)
    assert made.compare().differing == 2 * lines


def test_a_table_in_another_order_is_the_same(layout: str, tmp_path: Path) -> None:
    """Without a document of no token: which of two that start at one place it is, nobody could say."""
    corpus = {split: [p for p in pieces if p.tokens] for split, pieces in _corpus().items()}
    made = _made(tmp_path, layout, corpus)
    made.alter(lambda t: t.sample(fraction=1.0, shuffle=True, seed=3))
    assert made.compare() == Compared(0, _tokens(corpus), 0)


def _leaking() -> dict[str, list[Piece]]:
    """Return a corpus of which two validation documents stand in train: a short and a long one."""
    corpus = _corpus()
    short, long = [2, 3, 4], list(range(10, 10 + 2 * ROW + 1))
    corpus["val"] += [_piece(SHARDS[0], 50, short), _piece(SHARDS[1], 51, long)]
    corpus["val"] += [_piece(SHARDS[1], 52, [*long, 9]), _piece(SHARDS[0], 53, long[:ROW])]
    corpus["train"] += [_piece(SHARDS[2], 60, short), _piece(SHARDS[2], 61, long)]
    corpus["train"] += [_piece(SHARDS[0], 62, long), _piece(SHARDS[2], 63, [5, *long])]
    return corpus


def test_validation_documents_whose_tokens_are_in_train_are_leaked(
    layout: str, tmp_path: Path
) -> None:
    made = _made(tmp_path, layout, _leaking())
    assert made.compare()[0::2] == (0, 2)


def test_leaked_documents_are_counted_whichever_side_is_larger(layout: str, tmp_path: Path) -> None:
    corpus = _leaking()
    kept = [p for p in corpus["train"] if p.row > 50]
    made = _made(tmp_path, layout, {"train": kept, "val": corpus["val"]})
    assert made.compare()[0::2] == (0, 2)


@pytest.mark.parametrize("layout", ["documents", "rows"], indirect=True)
def test_a_leak_that_only_the_release_has_is_found_in_what_differs(
    layout: str, tmp_path: Path
) -> None:
    made = _made(tmp_path, layout, _leaking())

    def change(files: Files) -> None:
        """Give a validation document the tokens of a train document that is in one piece."""
        donor = next(p for b in ("train-00000", "train-00001") for p in files[b] if p.row < 9 and 0 < len(p.tokens) < ROW and not p.offset)  # fmt: skip
        base, i = next((b, i) for b in ("val-00000", "val-00001") for i, p in enumerate(files[b]) if p.row == 53)  # fmt: skip
        files[base][i] = files[base][i]._replace(tokens=donor.tokens, mask=donor.mask)

    assert _changed(made, layout, change) == 2
    assert made.compare().leaked == 3


def test_a_document_that_is_listed_in_both_splits_is_counted_once(made: Made) -> None:
    row = made.sound["val-00000"][0]
    made.alter(
        lambda t: t.with_columns(
            shard=pl.when(pl.int_range(pl.len()) < 2).then(pl.lit(row.shard)).otherwise("shard"),
            row=pl.when(pl.int_range(pl.len()) < 2).then(row.row).otherwise("row"),
        )
    )
    assert listed_in_both(made.lines()) == 1


def _obvious(packed: Files, files: Files) -> int:
    """Count what differs, all in memory."""
    sides = [
        Counter((base.split("-")[0], *p) for base, pieces in side.items() for p in pieces)
        for side in (packed, files)
    ]
    return sum(abs(sides[0][key] - sides[1][key]) for key in sides[0] | sides[1])


@pytest.mark.parametrize(("seed", "held"), [(0, 1), (1, 1), (2, 9), (3, 1 << 20)])
def test_any_damage_is_counted_as_a_comparison_in_memory_counts_it(
    seed: int, held: int, made: Made, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release_lines, "HELD_LINES", held)
    random = np.random.default_rng(seed)
    files = {base: list(pieces) for base, pieces in made.sound.items()}
    for base, i in _places(files, random):
        piece = files[base][i]
        match int(random.integers(5)):
            case 0:
                files[base][i] = piece._replace(tokens=tuple(t ^ 1 for t in piece.tokens))
            case 1:
                del files[base][i]
            case 2:
                files[base].append(piece)
            case 3:
                files[base][i] = piece._replace(row=piece.row + 1)
            case _:
                files["train-00000"].append(files[base].pop(i))
    made.release(files, rows=layout != "documents")
    assert made.compare().differing == _obvious(made.sound, files)


def _places(files: Files, random: np.random.Generator) -> Iterator[tuple[str, int]]:
    for _ in range(random.integers(1, 12)):
        base = sorted(files)[random.integers(len(files))]
        if files[base]:
            yield base, int(random.integers(len(files[base])))


def test_of_a_release_that_is_damaged_all_over_some_shards_are_held_at_a_time(
    made: Made, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, released = list[int](), release_comparing._Comparison._released

    def counted(self: release_comparing._Comparison, *given: Any) -> pl.DataFrame:
        found = released(self, *given)
        held.append(len(found))
        return found

    def change(files: Files) -> None:
        for pieces in files.values():
            pieces[:] = [p._replace(row=p.row + 100) for p in pieces]

    monkeypatch.setattr(release_comparing._Comparison, "_released", counted)
    monkeypatch.setattr(release_lines, "HELD_LINES", 15)
    lines = sum(len(pieces) for pieces in made.sound.values())
    sizes = Counter((b.split("-")[0], p.shard) for b, pieces in made.sound.items() for p in pieces)
    assert _changed(made, layout, change) == 2 * lines
    assert sum(held) == lines
    assert max(held) <= max(15, *sizes.values()) < lines
