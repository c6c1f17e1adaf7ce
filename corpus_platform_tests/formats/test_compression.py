"""Stored bytes to plain bytes: whole files come whole, damaged ones say where."""

import gzip
import io
import zlib

import pytest
from backports.zstd import CompressionParameter
from backports.zstd import compress as zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus_platform.errors import DamagedShard
from corpus_platform.formats.compression import MAX_CHUNK_BYTES, decompress, sniff

SKIPPABLE = bytes.fromhex("502a4d18") + (5).to_bytes(4, "little") + b"hello"
DEC_01 = bytes.fromhex(
    "28b52ffd203855010014027b226964223a226430222c2274657874223a226c696e652030227d0a3131227d0a"
    "0200a00b9e984e502a4d180500000068656c6c6f28b52ffd203855010014027b226964223a226432222c2274"
    "657874223a226c696e652032227d0a3333227d0a0200a00b9e984e"
)
DEC_02 = bytes.fromhex(
    "1f8b0800000000000203ab56ca4c51b2524a3150d2512a49ad2801b27332f352150c946ab9aaa17286687286"
    "403900e3a23a55380000001f8b0800000000000203ab56ca4c51b2524a3152d2512a49ad2801b27332f35215"
    "8c946ab9aaa172c66872c640390049c85b7638000000"
)
DEC_06 = bytes.fromhex(
    "28b52ffd00908103007b226964223a226430222c2274657874223a226c696e652030227d0a7b226964223a22"
    "6431222c2274657874223a226c696e652031227d0a7b226964223a226432222c2274657874223a226c696e65"
    "2032227d0a7b226964223a226433222c2274657874223a226c696e652033227d0a"
)
FOUR_LINES = b"".join(b'{"id":"d%d","text":"line %d"}\n' % (i, i) for i in range(4))


def read(stored: bytes, **options: int) -> bytes:
    return b"".join(decompress(io.BytesIO(stored), shard="2026-40/s", **options))


def damage(stored: bytes, **options: int) -> DamagedShard:
    with pytest.raises(DamagedShard) as caught:
        read(stored, **options)
    assert caught.value.partition == "2026-40/s"
    return caught.value


class Dribble(io.BytesIO):
    """A file that hands out at most `most` bytes at a time."""

    def __init__(self, content: bytes, most: int) -> None:
        super().__init__(content)
        self.most = most

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(self.most if size is None or size < 0 else min(size, self.most))


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", "plain"),
        (b"\x28\xb5\x2f", "plain"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x50\x2a\x4d\x18", "zstd"),
        (b"\x5f\x2a\x4d\x18", "zstd"),
        (b"\x60\x2a\x4d\x18", "plain"),
        (b"\x1f\x8b\x08", "gzip"),
        (b"PAR1\x15", "parquet"),
        (b"WARC/1.0\r\n", "warc"),
        (b'{"text":1}', "plain"),
    ],
)
def test_the_first_bytes_tell_the_kind(head: bytes, kind: str) -> None:
    assert sniff(head) == kind


def test_dec_01_concatenated_and_skippable_frames() -> None:
    assert read(DEC_01) == FOUR_LINES


def test_a_skippable_frame_may_come_first_and_last() -> None:
    assert read(SKIPPABLE + zstd(b"abc") + SKIPPABLE) == b"abc"


def test_dec_02_every_gzip_member_is_read() -> None:
    assert read(DEC_02) == FOUR_LINES


def test_dec_05_zero_padding_after_gzip_is_harmless() -> None:
    assert read(DEC_02 + bytes(512)) == FOUR_LINES


def test_dec_05_a_member_behind_zero_padding_is_read() -> None:
    assert read(DEC_02 + bytes(100_000) + gzip.compress(b"more")) == FOUR_LINES + b"more"


@pytest.mark.parametrize(("tail", "foreign"), [(b"garbage!", 110), (bytes(8) + b"x", 118)])
def test_dec_05_junk_after_gzip_raises_at_its_first_byte(tail: bytes, foreign: int) -> None:
    error = damage(DEC_02 + tail)
    assert error.offset == foreign
    assert str(foreign) in str(error)


@pytest.mark.parametrize("tail", [b"garbage!", b"\x28\xb5", bytes(8)])
def test_bytes_after_the_last_zstd_frame_raise_at_the_first_of_them(tail: bytes) -> None:
    assert damage(DEC_01 + tail).offset == 115


def test_dec_06_a_window_at_the_limit_is_read() -> None:
    assert read(DEC_06) == FOUR_LINES


def test_dec_06_a_window_beyond_the_limit_is_named_with_the_limit() -> None:
    error = damage(SKIPPABLE + DEC_06, max_window_bytes=1 << 27)
    assert "268435456" in str(error)
    assert "`read.max_window_bytes` = 134217728, raise it" in str(error)
    assert error.offset == len(SKIPPABLE)


def test_a_window_of_two_gigabytes_is_read_when_it_may_be() -> None:
    frame = DEC_06[:5] + bytes([(31 - 10) << 3]) + DEC_06[6:]
    assert "2147483648" in str(damage(frame))
    assert read(frame, max_window_bytes=1 << 31) == FOUR_LINES


def test_a_limit_between_two_powers_counts_to_the_byte() -> None:
    assert read(DEC_06, max_window_bytes=(1 << 28) + 1) == FOUR_LINES
    assert "268435455" in str(damage(DEC_06, max_window_bytes=(1 << 28) - 1))


@pytest.mark.parametrize(
    ("whole", "starts"),
    [
        (DEC_01, [0, 51, 64]),
        (DEC_02, [0, 55]),
        (zstd(bytes(5000)), [0]),
        (gzip.compress(bytes(5000), mtime=0), [0]),
    ],
)
def test_a_file_cut_anywhere_inside_a_piece_raises_at_its_end(
    whole: bytes, starts: list[int]
) -> None:
    for cut in range(4, len(whole)):
        begun = cut - max(start for start in starts if start <= cut)
        if begun >= 4:
            assert damage(whole[:cut]).offset == cut


def test_a_cut_after_some_megabytes_raises_at_the_end_of_the_file() -> None:
    noise = b"".join(zlib.crc32(b"%d" % i).to_bytes(4, "little") for i in range(200_000))
    for stored in (zstd(noise)[:-9], gzip.compress(noise, 1)[:-9]):
        assert damage(stored).offset == len(stored)


def test_a_bad_zstd_checksum_is_located_in_the_second_frame() -> None:
    checked = {int(CompressionParameter.checksum_flag): 1}
    first, second = zstd(b"one" * 100, options=checked), zstd(bytes(300_000), options=checked)
    stored = bytearray(first + second)
    stored[-1] ^= 1
    assert damage(bytes(stored)).offset == len(stored) - 4


@pytest.mark.parametrize("position", [-8, -4])
def test_a_bad_gzip_trailer_raises(position: int) -> None:
    stored = bytearray(gzip.compress(b"text" * 100))
    stored[position] ^= 1
    assert "corrupt between bytes 0 and" in str(damage(bytes(stored)))


def test_an_empty_file_has_no_bytes() -> None:
    assert read(b"") == b""


def test_the_chunks_of_a_bomb_are_bounded() -> None:
    zeros = bytes(50 << 20)
    for stored in (zstd(zeros), gzip.compress(zeros, 1)):
        sizes = [len(chunk) for chunk in decompress(io.BytesIO(stored), shard="s")]
        assert sum(sizes) == 50 << 20
        assert max(sizes) <= MAX_CHUNK_BYTES


def test_members_of_every_size_are_read_whole() -> None:
    noise = b"".join(zlib.crc32(b"%d" % i).to_bytes(4, "little") for i in range(30_000))
    sizes = [0, 1, 4073, 4096, 4097, 8192, 12_288, 70_000, 120_000]
    stored = b"".join(gzip.compress(noise[:size], 0) + bytes(size % 7) for size in sizes)
    assert read(stored) == b"".join(noise[:size] for size in sizes)


@pytest.mark.parametrize("flags", range(0, 32, 2))
def test_gzip_headers_with_optional_fields_may_come_byte_by_byte(flags: int) -> None:
    header = b"\x1f\x8b\x08" + bytes([flags]) + bytes(5) + b"\x03"
    header += b"\x04\x00abcd" if flags & 4 else b""
    header += b"name\0" if flags & 8 else b""
    header += b"comment\0" if flags & 16 else b""
    header += (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little") if flags & 2 else b""
    stored = gzip.compress(b"first") + header + gzip.compress(b"second", mtime=0)[10:]
    assert b"".join(decompress(Dribble(stored, 1), shard="s")) == b"firstsecond"


def _containers() -> st.SearchStrategy[tuple[str, list[bytes]]]:
    pieces = st.lists(st.binary(max_size=300), min_size=1, max_size=6)
    return st.tuples(st.sampled_from(["gzip", "zstd", "plain"]), pieces)


@settings(deadline=None, max_examples=100)
@given(_containers(), st.integers(1, 50))
def test_any_row_of_pieces_in_any_steps_comes_back(
    container: tuple[str, list[bytes]], step: int
) -> None:
    kind, pieces = container
    compress = {"gzip": gzip.compress, "zstd": zstd, "plain": lambda b: b"." + b}[kind]
    stored = b"".join(compress(piece) for piece in pieces)
    expected = stored if kind == "plain" else b"".join(pieces)
    assert b"".join(decompress(Dribble(stored, step), shard="s")) == expected
