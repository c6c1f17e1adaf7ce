"""What is written down of a download: how far it is, and of which version of its source.

The first line is the checkpoint, a JSON object; each further line is a mark, `[bytes, sha256]`.
Only the first is sure to be whole: of marks, those up to the first that cannot be read count.
"""

import msgspec

from corpus_platform.storage.files import canonical_json

__all__ = ["FORMAT", "Checkpoint", "Version", "parse_checkpoint"]

FORMAT = 1


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By what a server names one state of a file.

    `settled`: the file was a minute old when its time was told, so that the time means one state
    only: times have whole seconds, and a file can change twice in one.
    """

    etag: str | None = None
    last_modified: str | None = None
    settled: bool = False

    @property
    def name(self) -> str | None:
        """What to show and to keep of it."""
        return self.etag or self.last_modified

    @property
    def validator(self) -> str | None:
        """What proves to be the same bytes: a strong ETag, else a settled time, else nothing."""
        if self.etag is not None and not self.etag.startswith("W/"):
            return self.etag
        return self.last_modified if self.settled else None

    def proves(self, other: "Version") -> bool:
        """Tell whether an answer of another version is one about the same bytes."""
        if self.validator is None:
            return False
        if self.validator == self.etag:
            return other.etag == self.etag
        return (other.etag, other.last_modified) == (self.etag, self.last_modified)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first line, and the marks behind it. `source` is the hash of what the URL names, `url`
    what may be shown of it."""

    source: str
    url: str
    verified_bytes: int
    sha256: str
    expected_size: int | None
    version: Version
    format: int = FORMAT
    marks: tuple[tuple[int, str], ...] = ()

    @property
    def resumable(self) -> bool:
        """Whether the rest can be had: or there is none."""
        whole = self.verified_bytes == self.expected_size
        return self.verified_bytes > 0 and (whole or self.version.validator is not None)

    def line(self) -> bytes:
        """Return the first line."""
        told = msgspec.to_builtins(self)
        del told["marks"]
        return canonical_json(told).encode() + b"\n"


def parse_checkpoint(data: bytes) -> Checkpoint | None:
    """Return what a file says, None where it is not one of ours, or torn."""
    first, *rest = data.split(b"\n")
    try:
        found = msgspec.json.decode(first, type=Checkpoint)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if found.format != FORMAT or found.verified_bytes < 0 or not rest:
        return None
    return msgspec.structs.replace(found, marks=_marks(rest[:-1]))


def _marks(lines: list[bytes]) -> tuple[tuple[int, str], ...]:
    marks = []
    for line in lines:
        try:
            marks.append(msgspec.json.decode(line, type=tuple[int, str]))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            break
    return tuple(marks)
