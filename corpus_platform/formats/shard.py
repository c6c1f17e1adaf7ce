"""The files of a shard to batches of records, whatever format they are in.

The first bytes of each file choose its reader; names decide nothing. What is done with documents
and rejected records is for the stages to say.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import BinaryIO

from corpus_platform.config import Fields, ReadSettings
from corpus_platform.document import Document, Rejected
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.compression import Kind, decompress, sniff
from corpus_platform.formats.jsonl import read_jsonl
from corpus_platform.formats.limits import refuse_bomb
from corpus_platform.formats.parquet import open_parquet, read_row_group
from corpus_platform.formats.records import Cursor
from corpus_platform.formats.warc import read_warc

__all__ = ["ShardRecords", "read_shard"]

_BATCH_RECORDS = 1000
_BATCH_CHARACTERS = 8_000_000
_SNIFFED_BYTES = 8


class ShardRecords:
    """The records of one shard, in batches and in order; each iteration reads the files anew.

    `decompressed_bytes` (of Parquet: of the row groups, as their footer says), `stored_bytes_read`
    and `records_read` tell how far the last iteration has come; `passed` counts by type what is in
    it besides records of pages (of WARC). Rows, lines and offsets run on over the members of a
    bundle, as if they were one stream.
    """

    def __init__(
        self,
        members: Sequence[Path],
        fields: Fields,
        *,
        shard: str,
        max_record_bytes: int,
        limits: ReadSettings,
    ) -> None:
        self._members, self._fields, self._limits = tuple(members), fields, limits
        self._shard, self._max_record_bytes = shard, max_record_bytes
        self.passed: Counter[str] = Counter()
        self.decompressed_bytes = 0
        self.stored_bytes_read = 0
        self.records_read = 0

    def __iter__(self) -> Iterator[list[Document | Rejected]]:
        batch: list[Document | Rejected] = []
        characters = meta = 0  # apart: what a batch holds of usual records stays as it was
        try:
            for record in self._records():
                batch.append(record)
                if isinstance(record, Document):
                    characters += len(record.text)
                    meta += len(record.meta)
                if len(batch) == _BATCH_RECORDS or max(characters, meta) >= _BATCH_CHARACTERS:
                    yield batch
                    batch, characters, meta = [], 0, 0
        except DamagedShard:
            if batch:  # whoever looks at a cut shard sees what stands before the cut
                yield batch
            raise
        if batch:
            yield batch

    def _records(self) -> Iterator[Document | Rejected]:
        self.decompressed_bytes = self.stored_bytes_read = self.records_read = 0
        self.passed.clear()
        cursor = Cursor()
        for path in self._members:
            before = self.stored_bytes_read
            try:
                with path.open("rb") as file:
                    yield from self._member(file, cursor)
                self.stored_bytes_read = before + path.stat().st_size
                self.records_read = cursor.row
            except DamagedShard as error:
                if len(self._members) == 1:
                    raise
                reason = f"member {path.name}: {error.reason}"
                raise DamagedShard(self._shard, reason=reason, offset=error.offset) from error

    def _member(self, file: BinaryIO, cursor: Cursor) -> Iterator[Document | Rejected]:
        kind = sniff(file.read(_SNIFFED_BYTES))
        file.seek(0)
        if kind == "parquet":
            yield from self._parquet(file, cursor)
            return
        chunks = self._counted(file, cursor)
        head = b""
        while len(head) < _SNIFFED_BYTES and (chunk := next(chunks, b"")):
            head += chunk
        yield from self._content(sniff(head), chain((head,), chunks), cursor)

    def _content(
        self, kind: Kind, chunks: Iterator[bytes], cursor: Cursor
    ) -> Iterator[Document | Rejected]:
        shard, limit = self._shard, self._max_record_bytes
        if kind == "warc":
            yield from read_warc(
                chunks, self._fields, cursor, self.passed, shard=shard, max_record_bytes=limit
            )
        elif kind == "plain":
            yield from read_jsonl(chunks, self._fields, cursor, shard=shard, max_record_bytes=limit)
        else:
            reason = f"its content is {kind} inside another container; leave it out with `exclude`"
            raise DamagedShard(shard, reason=reason, offset=0)

    def _parquet(self, file: BinaryIO, cursor: Cursor) -> Iterator[Document | Rejected]:
        opened = open_parquet(file, self._fields, shard=self._shard)
        for group, about in enumerate(opened.groups):
            yield from read_row_group(
                opened,
                group,
                self._fields,
                cursor,
                shard=self._shard,
                max_record_bytes=self._max_record_bytes,
                max_page_bytes=self._limits.max_window_bytes,
                admit=self._refuse_bomb,
            )
            self.decompressed_bytes += about.plain
            self.stored_bytes_read += about.stored

    def _counted(self, file: BinaryIO, cursor: Cursor) -> Iterator[bytes]:
        before, window = self.stored_bytes_read, self._limits.max_window_bytes
        for chunk in decompress(file, shard=self._shard, max_window_bytes=window):
            self.decompressed_bytes += len(chunk)
            offset = file.tell()
            self.stored_bytes_read = before + offset
            self._refuse_bomb(0, 0, f"line {cursor.line}", offset)
            yield chunk

    def _refuse_bomb(self, plain: int, stored: int, where: str, offset: int) -> None:
        """Raise when so much more than what has been read is too much for a shard."""
        refuse_bomb(
            self.decompressed_bytes + plain,
            self.stored_bytes_read + stored,
            self._limits,
            shard=self._shard,
            where=where,
            offset=offset,
        )


def read_shard(
    members: Sequence[Path],
    fields: Fields,
    *,
    shard: str,
    max_record_bytes: int,
    limits: ReadSettings | None = None,
) -> ShardRecords:
    """Return the records of a shard, to be iterated; without `limits` their defaults hold.

    Iterating raises DamagedShard where the bytes of a member are cut, corrupt, of a wrong kind or
    swell beyond a limit.
    """
    return ShardRecords(
        members,
        fields,
        shard=shard,
        max_record_bytes=max_record_bytes,
        limits=limits or ReadSettings(),
    )
