"""Turns a folded text into the digest by which exact copies are known.

Folding is the caller's (`text.folding.fold`); which copy stays is decided in `clusters`.
"""

import hashlib

__all__ = ["text_digest"]


def text_digest(folded: str) -> bytes:
    """Return the 32 bytes of SHA-256 of the folded text in UTF-8."""
    return hashlib.sha256(folded.encode("utf-8")).digest()
