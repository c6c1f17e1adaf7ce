"""Stored bytes to plain bytes: gzip, zstd and plain files, told apart by their first bytes.

A file is read as a stream, every gzip member and zstd frame of it; a fault raises DamagedShard
with its place in the file. What the plain bytes mean is for `jsonl` and `warc` to say.
"""

from collections.abc import Callable, Iterator
from typing import BinaryIO, Literal, NamedTuple, Protocol, cast

from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
from isal import igzip_lib

from corpus_platform.errors import DamagedShard

__all__ = ["MAX_CHUNK_BYTES", "Kind", "decompress", "sniff"]

Kind = Literal["gzip", "zstd", "parquet", "warc", "plain"]

# Of plain bytes in one step, however far they are compressed. The decoders give their first block
# of 32 KB away as it is and copy what is larger: a fifth faster than 1 MB, and it stays in cache.
MAX_CHUNK_BYTES = 1 << 15
_READ_BYTES = 1 << 16  # of stored bytes in one step; a fault is located to within these
# Of a piece, then twice as much until it is _READ_BYTES: what is not used is copied back, and in
# WET files every record of 2 KB is a piece.
_FIRST_BYTES = 1 << 12
# isal misreads a gzip header with optional fields that comes in two pieces, so such a member begins
# with this much at hand.
_OPTIONAL_BYTES = 1 << 15
_HEADER_BYTES = 18  # of the longest zstd frame header; a gzip header without options has 10


def sniff(head: bytes) -> Kind:
    """Tell what a file is from its first bytes; 8 are enough."""
    magic = int.from_bytes(head[:4], "little") if len(head) >= 4 else 0
    if magic == 0xFD2FB528 or 0x184D2A50 <= magic <= 0x184D2A5F:  # a frame or a skippable one
        return "zstd"
    if head.startswith(b"\x1f\x8b"):
        return "gzip"
    if head.startswith((b"PAR1", b"PARE")):
        return "parquet"
    return "warc" if head.startswith(b"WARC/") else "plain"


def decompress(file: BinaryIO, *, shard: str, max_window_bytes: int = 1 << 28) -> Iterator[bytes]:
    """Yield the plain bytes of a file, in small chunks.

    Files that are neither gzip nor zstd pass unchanged, by _READ_BYTES; of others a chunk has at
    most MAX_CHUNK_BYTES. A zstd frame may need a window of up to `max_window_bytes`, which is
    memory. Raises DamagedShard for cut or corrupt input and for bytes behind the last piece that
    begin no other, zero padding behind gzip excepted.
    """
    stored = _Stored(file)
    kind = sniff(stored.peek(_HEADER_BYTES))
    if kind == "gzip":
        yield from _pieces(stored, _GZIP, shard)
    elif kind == "zstd":
        yield from _pieces(stored, _zstd(max_window_bytes), shard)
    else:
        while chunk := stored.take():
            yield chunk


# The stubs of isal declare its error as an instance.
_FAULTS = (ZstdError, cast("type[Exception]", igzip_lib.IsalError))


class _Decoder(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int) -> bytes: ...


class _Codec(NamedTuple):
    kind: Kind
    piece: str  # what a file of this kind is a row of
    decoder: Callable[[bytes], _Decoder]  # from the first bytes of a piece; ValueError refuses it


class _Stored:
    """A file as stored; `position` is that of the next byte to take."""

    def __init__(self, file: BinaryIO) -> None:
        self.file, self._held, self._at, self._read = file, b"", 0, 0

    @property
    def position(self) -> int:
        return self._read - len(self._held) + self._at

    def peek(self, size: int) -> bytes:
        """Return what comes next, `size` bytes of it unless the file ends."""
        while len(self._held) - self._at < size and (more := self.file.read(_READ_BYTES)):
            self._held, self._at = self._held[self._at :] + more, 0
            self._read += len(more)
        return self._held[self._at : self._at + size]

    def take(self, size: int = _READ_BYTES) -> bytes:
        """Return the next bytes, at most `size` and none only at the end of the file."""
        self.peek(1)
        data = self._held[self._at : self._at + size]
        self._at += len(data)
        return data

    def put_back(self, size: int) -> None:
        """Stand `size` bytes before what comes next; these are of the last `take`."""
        self._at -= size

    def skip_zeros(self) -> None:
        while data := self.take():
            if rest := data.lstrip(b"\0"):
                self.put_back(len(rest))
                return


def _pieces(stored: _Stored, codec: _Codec, shard: str) -> Iterator[bytes]:
    while head := stored.peek(_HEADER_BYTES):
        start = stored.position
        if sniff(head) != codec.kind:
            reason = f"from byte {start} on there is no {codec.kind} {codec.piece} but other data"
            raise DamagedShard(shard, reason=reason, offset=start)
        try:
            decoder = codec.decoder(head)
        except ValueError as error:
            reason = f"the {codec.kind} {codec.piece} at byte {start} {error}"
            raise DamagedShard(shard, reason=reason, offset=start) from error
        yield from _piece(stored, decoder, codec, shard)
        if codec.kind == "gzip":
            stored.skip_zeros()  # padding of tapes and block devices


def _piece(stored: _Stored, decoder: _Decoder, codec: _Codec, shard: str) -> Iterator[bytes]:
    start = fed = stored.position
    step = _FIRST_BYTES
    if codec.kind == "gzip" and any(stored.peek(4)[3:]):
        step = len(stored.peek(_OPTIONAL_BYTES))
    while not decoder.eof:
        data = b""
        if decoder.needs_input:
            fed, data = stored.position, stored.take(step)
            step = min(2 * step, _READ_BYTES)
            if not data:
                reason = (
                    f"cut off at byte {fed}, inside the {codec.kind} {codec.piece} that begins"
                    f" at byte {start}; get the file again"
                )
                raise DamagedShard(shard, reason=reason, offset=fed)
        try:
            chunk = decoder.decompress(data, max_length=MAX_CHUNK_BYTES)
        except _FAULTS as error:
            raise _corrupt(stored, shard, error, start=start, fed=fed) from error
        if chunk:
            yield chunk
    stored.put_back(len(decoder.unused_data))


def _corrupt(
    stored: _Stored, shard: str, error: Exception, *, start: int, fed: int
) -> DamagedShard:
    end = stored.position
    if isinstance(error, ZstdError) and "checksum" in str(error):
        fed = _zstd_checksum_position(stored.file, start)
        end = fed + 4
    reason = f"corrupt between bytes {fed} and {end}: {error}; get the file again"
    return DamagedShard(shard, reason=reason, offset=fed)


def _open_gzip(_head: bytes) -> _Decoder:
    return igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)


_GZIP = _Codec("gzip", "member", _open_gzip)


def _zstd(max_window_bytes: int) -> _Codec:
    log = max(10, (max_window_bytes - 1).bit_length())  # the format begins at 2**10

    def open_frame(head: bytes) -> _Decoder:
        window = _frame_header(head).window
        if window > max_window_bytes:
            raise ValueError(
                f"needs a window of {window} bytes, which is memory; the limit is"
                f" `read.max_window_bytes` = {max_window_bytes}, raise it to read the shard"
            )
        return ZstdDecompressor(options={DecompressionParameter.window_log_max: log})

    return _Codec("zstd", "frame", open_frame)


class _FrameHeader(NamedTuple):
    size: int
    window: int


def _frame_header(head: bytes) -> _FrameHeader:
    """Read the header of a zstd frame (RFC 8878, 3.1.1.1); a skippable frame has no window."""
    if head[1:4] == b"\x2a\x4d\x18":
        return _FrameHeader(size=8, window=0)
    head = head[:18].ljust(18, b"\0")  # of a frame cut this early the decoder complains
    single_segment = head[4] >> 5 & 1
    dictionary_bytes = (0, 1, 2, 4)[head[4] & 3]
    content_bytes = (single_segment, 2, 4, 8)[head[4] >> 6]
    content_at = 6 - single_segment + dictionary_bytes
    size = content_at + content_bytes
    if single_segment:
        content = int.from_bytes(head[content_at:size], "little")
        return _FrameHeader(size, content + 256 if content_bytes == 2 else content)
    base = 1 << (10 + (head[5] >> 3))
    return _FrameHeader(size, base + base // 8 * (head[5] & 7))


def _zstd_checksum_position(file: BinaryIO, start: int) -> int:
    """Walk over the blocks of the frame at `start` (RFC 8878, 3.1.1.2) to the checksum."""
    file.seek(start)
    position, last = start + _frame_header(file.read(18)).size, 0
    while not last:
        file.seek(position)
        block = int.from_bytes(file.read(3), "little")
        last, kind, size = block & 1, block >> 1 & 3, block >> 3
        position += 3 + (1 if kind == 1 else size)  # kind 1: one byte, to be repeated
    return position
