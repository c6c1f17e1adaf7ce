"""What a location names, in words that may be kept: for records of files, and for their names.

`transfer.shown` is for messages and drops the query of a URL; here two objects never have the same
words, and one object has the same words whoever signed its URL, and when.
"""

from pathlib import PurePosixPath

from corpus_platform.storage.files import safe_name, text_sha256
from corpus_platform.storage.partial import identity
from corpus_platform.storage.transfer import shown

__all__ = ["download_name", "file_name", "source_of"]

# A name gets `.file.partial.json` and, while that is written, 40 more; a file system takes 255.
_LONGEST = 190


def source_of(location: str) -> str:
    """Return what a location names, without user, password and signatures.

    Of an object of S3 that is its whole key, whatever is in it. What else the query of a URL says
    may be secret, but may choose between files: it stands there as a hash.
    """
    if location.startswith("s3://"):
        bucket, slash, key = location.removeprefix("s3://").partition("/")
        return f"s3://{bucket.rpartition('@')[2]}{slash}{key}"
    plain = shown(location)
    if "://" not in location or plain.endswith("://..."):  # a path; no URL, which nobody can fetch
        return plain
    named = identity(location)
    return plain if named == identity(plain) else f"{plain}?{named[:32]}"


def download_name(location: str) -> str:
    """Return the name of a location's file among those of all others; it can be read."""
    source = source_of(location)
    name = safe_name(source)
    return name if len(name) <= _LONGEST else f"{name[:120]}~{text_sha256(source)}"


def file_name(location: str) -> str:
    """Return how the file of a location is called where it lies, without its folders."""
    is_s3 = location.startswith("s3://")
    return PurePosixPath(source_of(location) if is_s3 else shown(location)).name
