"""The files of a shard to batches of records, whatever format they are in.

The first bytes of each file choose its reader; names decide nothing. What is done with documents
and rejected records is for the stages to say.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from corpus_platform.config import Fields
from corpus_platform.document import Document, Rejected
from corpus_platform.errors import DamagedShard
from corpus_platform.formats.compression import decompress, sniff
from corpus_platform.formats.jsonl import read_jsonl
from corpus_platform.formats.parquet import open_parquet, read_row_group, stored_size
from corpus_platform.formats.records import Cursor

__all__ = ["ShardRecords", "read_shard"]

_BATCH_RECORDS = 1000
_BATCH_CHARACTERS = 8_000_000


class ShardRecords:
    """The records of one shard, in batches and in order; each iteration reads the files anew.

    `decompressed_bytes` (of Parquet: of the row groups, as their footer says), `stored_bytes_read`
    and `records_read` tell how far the last iteration has come. Rows, lines and offsets run on
    over the members of a bundle, as if they were one stream.
    """

    def __init__(
        self, members: Sequence[Path], fields: Fields, *, shard: str, max_record_bytes: int
    ) -> None:
        self._members, self._fields = tuple(members), fields
        self._shard, self._max_record_bytes = shard, max_record_bytes
        self.decompressed_bytes = 0
        self.stored_bytes_read = 0
        self.records_read = 0

    def __iter__(self) -> Iterator[list[Document | Rejected]]:
        batch: list[Document | Rejected] = []
        characters = 0
        for record in self._records():
            batch.append(record)
            characters += len(record.text) if isinstance(record, Document) else 0
            if len(batch) == _BATCH_RECORDS or characters >= _BATCH_CHARACTERS:
                yield batch
                batch, characters = [], 0
        if batch:
            yield batch

    def _records(self) -> Iterator[Document | Rejected]:
        self.decompressed_bytes = self.stored_bytes_read = self.records_read = 0
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
        kind = sniff(file.read(8))
        file.seek(0)
        if kind == "parquet":
            yield from self._parquet(file, cursor)
            return
        yield from read_jsonl(
            self._lines_only(self._counted(file)),
            self._fields,
            cursor,
            shard=self._shard,
            max_record_bytes=self._max_record_bytes,
        )

    def _parquet(self, file: BinaryIO, cursor: Cursor) -> Iterator[Document | Rejected]:
        parquet = open_parquet(file, self._fields, shard=self._shard)
        for group in range(parquet.num_row_groups):
            yield from read_row_group(
                parquet,
                group,
                self._fields,
                cursor,
                shard=self._shard,
                max_record_bytes=self._max_record_bytes,
            )
            about = parquet.metadata.row_group(group)
            self.decompressed_bytes += about.total_byte_size
            self.stored_bytes_read += stored_size(about)

    def _counted(self, file: BinaryIO) -> Iterator[bytes]:
        before = self.stored_bytes_read
        for chunk in decompress(file, shard=self._shard):
            self.decompressed_bytes += len(chunk)
            self.stored_bytes_read = before + file.tell()
            yield chunk

    def _lines_only(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Pass the chunks on unless their first bytes are those of another format."""
        for number, chunk in enumerate(chunks):
            kind = sniff(chunk) if number == 0 else "plain"
            if kind != "plain":
                reason = f"its content is {kind}, which is not read as JSON lines; leave it out with `exclude`"
                raise DamagedShard(self._shard, reason=reason, offset=0)
            yield chunk


def read_shard(
    members: Sequence[Path], fields: Fields, *, shard: str, max_record_bytes: int
) -> ShardRecords:
    """Return the records of a shard, to be iterated.

    Iterating raises DamagedShard where the bytes of a member are cut, corrupt or of a wrong kind.
    """
    return ShardRecords(members, fields, shard=shard, max_record_bytes=max_record_bytes)
