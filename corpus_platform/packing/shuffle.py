"""Shuffle keys: one 64-bit number per unit; rising keys are the order of a release.

A key depends on seed, shard name and row alone, so the order is the same for any number of
workers and files, and a new shard only inserts documents between those already there. Who moves
the tokens, and in how many passes, is decided elsewhere.
"""

import hashlib

import numpy as np

__all__ = ["document_keys"]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)


def document_keys(seed: int, shard: str, rows: np.ndarray) -> np.ndarray:
    """Return the uint64 shuffle key of each of these rows of a shard.

    Rows of one shard never share a key: a shard is one SplitMix64 stream, addressed by row.
    """
    name = hashlib.blake2b(f"{seed}\0{shard}".encode(), digest_size=8).digest()
    return _splitmix64(int.from_bytes(name, "little"), rows.astype(np.uint64))


def _splitmix64(state: int, index: np.ndarray) -> np.ndarray:
    """Return the index-th outputs of SplitMix64 from a state (Steele, Lea, Flood 2014)."""
    mixed = np.uint64(state) + (index + np.uint64(1)) * _GAMMA
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
