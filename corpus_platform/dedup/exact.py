"""Turns a text into the digest by which exact copies are known.

Folding is the caller's (`text.folding.fold`); which copy stays is decided in `clusters`.
"""

import hashlib

__all__ = ["text_digest"]


def text_digest(text: str | bytes) -> bytes:
    """Return the 32 bytes of SHA-256 of a text in UTF-8."""
    return hashlib.sha256(text.encode() if isinstance(text, str) else text).digest()
