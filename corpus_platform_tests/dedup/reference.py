"""The arithmetic of shingles and signatures once more, in plain Python integers, slow and obvious.

Written from the heads of the modules, not from the kernels; nothing of ours is used but the units.
"""

from corpus_platform.text.units import UnitKind, split_units

__all__ = ["fast_signature", "shingles", "unit_hash", "windows"]

MASK = 2**64 - 1


def fold_high(product: int) -> int:
    product &= MASK
    return product ^ (product >> 32)


def unit_hash(unit: str) -> int:
    """Return the hash over chunks of whole characters of at most 8 bytes."""
    mixed, chunk = 0x243F6A8885A308D3, b""
    for character in unit:
        if len(chunk) + len(character.encode()) > 8:
            mixed, chunk = (
                fold_high((mixed ^ int.from_bytes(chunk, "big")) * 0xA4093822299F31D1),
                b"",
            )
        chunk += character.encode()
    return fold_high((mixed ^ int.from_bytes(chunk, "big")) * 0xA4093822299F31D1)


def text_hash(text: str) -> int:
    """Return the hash of a text without units: of its length and its bytes."""
    mixed = 0x13198A2E03707344
    for number in (len(text.encode()), *text.encode()):
        mixed = fold_high((mixed ^ number) * 0xA4093822299F31D1)
    return mixed


def window_hash(units: list[int]) -> int:
    """Join neighbours, then neighbours of these, until one value stands for all units."""
    level, span = units, 1
    while span < len(units):
        step = min(span, len(units) - span)
        pairs = zip(level, level[step:], strict=False)
        level = [fold_high(left * 0xB7E151628AED2A6B + right) for left, right in pairs]
        span += step
    return finish(level[0], len(units))


def finish(joined: int, units: int) -> int:
    return fold_high((joined ^ units) * 0xBF7158809CF4F3C7)


def windows(text: str, kind: UnitKind, width: int) -> list[int]:
    """Return the hash of every window in order."""
    units = [unit_hash(unit) for unit in split_units(text, kind)]
    if not units:
        return [finish(text_hash(text), 0)]
    used = min(width, len(units))
    return [window_hash(units[i : i + used]) for i in range(len(units) - used + 1)]


def shingles(text: str, kind: UnitKind, width: int) -> list[int]:
    """Return the distinct hashes of a text, ascending."""
    return sorted(set(windows(text, kind, width)))


def fast_signature(hashes: set[int], k: int, seed: int) -> list[int]:
    """Return the sketch of arXiv:1704.04370, figure 1, with 32-bit values."""
    bins: list[int | None] = [None] * k
    for turn in range(2 * k):
        thrown: dict[int, int] = {}
        for shingle in hashes:
            mixed = fold_high((shingle ^ salt(seed, turn)) * 0x62E7160F38B4DA57)
            bin = turn - k if turn >= k else (mixed >> 32) * k >> 32
            thrown[bin] = min(thrown.get(bin, 2**32), mixed & 0xFFFFFFFF)
        for bin, value in thrown.items():
            if bins[bin] is None:
                bins[bin] = value
    return [value for value in bins if value is not None]


def salt(seed: int, turn: int) -> int:
    """Return the step `turn` of splitmix64 from seed * 2^32."""
    z = ((seed << 32) + (turn + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)
