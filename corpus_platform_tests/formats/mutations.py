"""Good shards of every container, damaged at random, and what reading them may come to.

    python -m corpus_platform_tests.formats.mutations FIRST COUNT

reads the inputs FIRST to FIRST + COUNT - 1, each made of its number alone, and says how they ended.
It exits with 1 at the first that breaks a promise: whatever the bytes, reading ends soon, in little
memory, in DamagedShard or with a count that another reader agrees to.
"""

import faulthandler
import gzip
import io
import json
import random
import resource
import sys
import tempfile
import zlib
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from backports import zstd

from corpus_platform.config import Fields
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.shard import read_shard

__all__ = ["Seed", "mutate", "outcome", "recount", "run", "seeds"]

SECONDS = 20  # for one input; the slowest take a tenth of one
MEGABYTES = 400  # that the peak of the process may grow over all inputs
MAX_RECORD_BYTES = 1 << 20


class Seed(NamedTuple):
    """A good shard of so many records."""

    kind: str
    content: bytes
    records: int


def _lines() -> bytes:
    texts = [
        "plain words",
        "Grüße aus Köln",
        "日本語の本文",
        "line\nline\u2028line",
        "\U0001f600 " * 9,
    ]
    records: list[object] = [
        {
            "id": f"{i}",
            "text": texts[i % 5] * (1 + i % 7),
            "url": "https://x.org",
            "n": [i, {"a": 1.5}],
        }
        for i in range(40)
    ]
    records[7:9] = [{"text": None}, ["no object"]]
    lines = [json.dumps(record, ensure_ascii=i % 3 == 0) for i, record in enumerate(records)]
    return "\n".join([*lines, "", "{ no JSON", ""]).encode()


def _count_lines(content: bytes) -> int:
    records = (x.removesuffix(b"\r").removeprefix(b"\xef\xbb\xbf") for x in content.split(b"\n"))
    return sum(bool(record.strip(b" \t\n\r\x0b\x0c")) for record in records)


def recount(content: bytes) -> int | None:
    """Count the records by other readers; None where these refuse the bytes or there is none."""
    try:
        if content.startswith(b"PAR1"):
            return pq.read_metadata(io.BytesIO(content)).num_rows
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        elif content[:4] in (b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18"):
            content = zstd.decompress(content)
    except (pa.ArrowException, OSError, EOFError, zlib.error, zstd.ZstdError):
        return None
    return None if content.startswith(b"WARC/") else _count_lines(content)


def _parquet(table: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _table() -> pa.Table:
    rows = range(60)
    return pa.table(
        {
            "id": [f"{i}" for i in rows],
            "text": [None if i == 9 else f"page {i % 11} " * (i % 13 + 1) for i in rows],
            "tags": [[f"t{i}", None] if i % 3 else None for i in rows],
            "score": [i / 7 for i in rows],
        }
    )


def _wet() -> bytes:
    head = "WARC/1.0\r\nWARC-Type: {}\r\nWARC-Target-URI: https://x.org/{}\r\nContent-Length: {}\r\n\r\n"
    blocks = [f"page {i} Grüße ".encode() * (i + 1) for i in range(20)]
    return b"".join(
        head.format("conversion" if i else "warcinfo", i, len(block)).encode() + block + b"\r\n\r\n"
        for i, block in enumerate(blocks)
    )


@cache
def seeds() -> tuple[Seed, ...]:
    """Return the good shards."""
    lines, wet, table = _lines(), _wet(), _table()
    pieces = [lines[i : i + 700] for i in range(0, len(lines), 700)]
    checked = {int(zstd.CompressionParameter.checksum_flag): 1}
    skippable = bytes.fromhex("502a4d1805000000") + b"hello"
    frames = skippable.join(zstd.compress(piece, options=checked) for piece in pieces)
    text = table.column("text").combine_chunks().dictionary_encode()
    by_dictionary = table.set_column(1, "text", text)
    return (
        Seed("jsonl", lines, 41),
        Seed("gzip", gzip.compress(lines, mtime=0), 41),
        Seed("gzip members", b"".join(gzip.compress(p, mtime=0) for p in pieces), 41),
        Seed("zstd", zstd.compress(lines, options=checked), 41),
        Seed("zstd frames", frames, 41),
        Seed("parquet snappy", _parquet(table, row_group_size=25), 60),
        Seed("parquet zstd", _parquet(table, compression="zstd", use_dictionary=False), 60),
        Seed("parquet v2", _parquet(table, compression="none", data_page_version="2.0"), 60),
        Seed("parquet checked", _parquet(by_dictionary, write_page_checksum=True), 60),
        Seed("warc", wet, 19),
        Seed("warc gzip", gzip.compress(wet, mtime=0), 19),
    )


def mutate(content: bytes, rng: random.Random) -> bytes:
    """Damage some bytes in one to three ways, or, one time in fifty, none."""
    if rng.random() < 0.02:
        return content
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(_MUTATIONS)(data, rng)
    return bytes(data)


def _place(data: bytearray, rng: random.Random) -> int:
    """Return a position; every third time among the first or last, where headers and footers are."""
    if rng.random() < 0.33:
        near = rng.randrange(min(len(data), 64) or 1)
        return near if rng.random() < 0.5 else max(0, len(data) - 1 - near)
    return rng.randrange(len(data) or 1)


def _span(data: bytearray, rng: random.Random) -> slice:
    start = _place(data, rng)
    return slice(start, start + rng.choice((1, 2, 4, 8, 64, 1000)))


def _flip(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 8))):
        if data:
            data[_place(data, rng)] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[_place(data, rng)] = rng.choice((0, 1, 10, 13, 34, 91, 92, 123, 127, 128, 192, 255))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[_place(data, rng) :]


def _lose(data: bytearray, rng: random.Random) -> None:
    del data[_span(data, rng)]


def _insert(data: bytearray, rng: random.Random) -> None:
    start = _place(data, rng)
    data[start:start] = rng.randbytes(rng.choice((1, 4, 100)))


def _repeat(data: bytearray, rng: random.Random) -> None:
    start = _place(data, rng)
    data[start:start] = data[_span(data, rng)] * rng.choice((1, 1, 2, 50))


def _swap(data: bytearray, rng: random.Random) -> None:
    one, two = sorted((_place(data, rng), _place(data, rng)))
    size = min(rng.choice((1, 16, 500)), two - one)
    data[one : one + size], data[two : two + size] = data[two : two + size], data[one : one + size]


def _zero(data: bytearray, rng: random.Random) -> None:
    span = _span(data, rng)
    data[span] = bytes(len(data[span]))


def _number(data: bytearray, rng: random.Random) -> None:
    """Write a length of a kind that readers trip over."""
    start = _place(data, rng)
    value = rng.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x10000, len(data)))
    data[start : start + 4] = value.to_bytes(4, rng.choice(("little", "big")))


def _append(data: bytearray, rng: random.Random) -> None:
    data += rng.choice((rng.choice(seeds()).content, bytes(64), b"garbage", b"\n" * 50))


_MUTATIONS = (_flip, _flip, _set, _cut, _lose, _insert, _repeat, _swap, _zero, _number, _append)


def outcome(seed: Seed, content: bytes, folder: Path) -> str:
    """Read some bytes; return how it ended. Raises AssertionError for a broken promise."""
    path = folder / "shard"
    path.write_bytes(content)
    shard = read_shard([path], Fields(), shard="c/s", max_record_bytes=MAX_RECORD_BYTES)
    try:
        records = [record for batch in shard for record in batch]
    except DamagedShard as damage:
        if content == seed.content:
            raise AssertionError(f"a good shard is refused: {damage}") from damage
        return "damaged"
    assert [record.row for record in records] == list(range(shard.records_read))
    if content == seed.content:
        assert len(records) == seed.records, f"{len(records)} of {seed.records} records"
        return "intact"
    other = recount(content)
    assert other in (None, len(records)), f"{len(records)} records, another reader finds {other}"
    return "read"


def run(first: int, count: int) -> Counter[str]:
    """Read so many inputs; return how many ended how, by kind of shard."""
    ended: Counter[str] = Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as folder:
        for number in range(first, first + count):
            rng = random.Random(number)
            seed = seeds()[number % len(seeds())]
            content = mutate(seed.content, rng)
            faulthandler.dump_traceback_later(SECONDS, exit=True)
            try:
                ended[f"{seed.kind}: {outcome(seed, content, Path(folder))}"] += 1
            except BaseException:
                sys.stderr.write(f"input {number} ({seed.kind})\n")
                raise
            faulthandler.cancel_dump_traceback_later()
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
            assert grown < MEGABYTES, f"input {number} ({seed.kind}): {grown} MB more"
    return ended


if __name__ == "__main__":
    faulthandler.enable()
    for what, times in sorted(run(int(sys.argv[1]), int(sys.argv[2])).items()):
        sys.stdout.write(f"{times} {what}\n")
