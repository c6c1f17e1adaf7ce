"""Folds UTF-8, and turns it into the 64-bit hashes of its units, in machine code.

Folding is that of `text.folding`, of texts that are NFC already.

The units are those of `text.units`, which stays the obvious way to say what they are: both look at
the same sets of code points. A unit is hashed over chunks of its UTF-8, each as many whole
characters as fit into 8 bytes, read as a big-endian number: h = UNIT_SEED, then for each chunk
h = (h ^ chunk) * UNIT_FACTOR modulo 2^64, h ^= h >> 32. The second step is not linear: no text can
be built of which the chunks cancel out. What is stored depends on this arithmetic: it never changes
without a new SHINGLE_VERSION.

Input is valid UTF-8, as `str.encode` gives it: nothing is checked here. Numba does not see that a
function of another module has changed and takes the old one out of its cache: so no kernel calls
one of another module.
"""

import functools

import numpy as np
import numpy.typing as npt

from corpus_platform.text.compiling import inner, kernel
from corpus_platform.text.units import UnitKind, run_points, unspaced_points

__all__ = ["fold_points", "folded_points", "hash_units", "unit_classes", "warm"]

_SEPARATOR, _RUN, _UNIT = 0, 1, 2

# Digits of pi: nobody chose them. The factor is odd, so that no bit falls out of a product.
_UNIT_SEED = np.uint64(0x243F6A8885A308D3)
_TEXT_SEED = np.uint64(0x13198A2E03707344)  # of texts without a unit
_UNIT_FACTOR = np.uint64(0xA4093822299F31D1)
_BLOCK = 128  # bytes that are looked at together, if all of them are ASCII
_BYTE = np.uint64(8)  # bits, and bytes in a chunk
_HALF = np.uint64(32)
_BLANK = 0x20


@functools.cache
def unit_classes(kind: UnitKind) -> npt.NDArray[np.uint8]:
    """Return for each code point: 0 separates, 1 makes a run with its like, 2 is a unit alone.

    Empty for `char`: all are units.
    """
    if kind == "char":
        return np.empty(0, np.uint8)
    table = np.full(0x110000, _SEPARATOR, np.uint8)
    table[list(run_points())] = _RUN
    if kind == "auto":
        table[list(unspaced_points())] = _UNIT
    return table


@kernel
def hash_units(
    data: npt.NDArray[np.uint8],
    ends: npt.NDArray[np.int64],
    classes: npt.NDArray[np.uint8],
    hashes: npt.NDArray[np.uint64],
    counts: npt.NDArray[np.int64],
) -> int:
    """Write the hashes of the units of the texts that end at `ends`; return how many there are.

    `counts` gets the units of each text. A text without a unit has one hash, of itself, and a count
    of 0. What does not fit into `hashes` is counted and not written.
    """
    place, start = 0, 0
    for text in range(ends.size):
        first = place
        if not classes.size:
            place = _each(data, start, ends[text], hashes, place)
        else:
            place = _cut(data, start, ends[text], classes, hashes, place)
        counts[text] = place - first
        if place == first:
            place = _put(hashes, place, _whole(data, start, ends[text]))
        start = ends[text]
    return place


@inner
def _each(
    data: npt.NDArray[np.uint8], at: int, end: int, hashes: npt.NDArray[np.uint64], place: int
) -> int:
    """Write the hash of every character from `place` on; return the place behind them."""
    while at < end:
        block = data[at : min(at + _BLOCK, end)]
        if place + block.size <= hashes.size and _all_ascii(block):
            _each_byte(block, hashes[place : place + block.size])
            place += block.size
            at += block.size
            continue
        stop = at + block.size
        while at < stop:
            _, raw, size = _decode(data, at)
            place = _put(hashes, place, _mix(_UNIT_SEED, raw))
            at += size
    return place


@inner
def _all_ascii(block: npt.NDArray[np.uint8]) -> bool:
    joined = np.uint8(0)
    for byte in block:
        joined |= byte
    return bool(joined < 0x80)


@inner
def _each_byte(block: npt.NDArray[np.uint8], hashes: npt.NDArray[np.uint64]) -> None:
    for i in range(hashes.size):
        hashes[i] = _mix(_UNIT_SEED, np.uint64(block[i]))


@inner
def _cut(
    data: npt.NDArray[np.uint8],
    at: int,
    end: int,
    classes: npt.NDArray[np.uint8],
    hashes: npt.NDArray[np.uint64],
    place: int,
) -> int:
    """Write the hashes of runs and lone units from `place` on; return the place behind them."""
    mixed, chunk, held = _UNIT_SEED, np.uint64(0), 0
    borders = np.empty(_BLOCK + 1, np.uint64)
    slow_until = at
    while at < end:
        if not held and at >= slow_until:
            block = data[at : min(at + _BLOCK, end)]
            slow_until = at + block.size
            roomy = slow_until + 8 <= data.size and place + _BLOCK <= hashes.size
            if roomy and _all_ascii(block):
                at, place = _ascii_runs(data, at, slow_until, classes, borders, hashes, place)
                continue
        point, raw, size = _decode(data, at)
        at += size
        kind = classes[point]
        if kind == _RUN:
            if held + size > 8:
                mixed, chunk, held = _mix(mixed, chunk), np.uint64(0), 0
            chunk = (chunk << np.uint64(8 * size)) | raw
            held += size
            continue
        if held:
            place = _put(hashes, place, _mix(mixed, chunk))
            mixed, chunk, held = _UNIT_SEED, np.uint64(0), 0
        if kind == _UNIT:
            place = _put(hashes, place, _mix(_UNIT_SEED, raw))
    return _put(hashes, place, _mix(mixed, chunk)) if held else place


@inner
def _ascii_runs(
    data: npt.NDArray[np.uint8],
    at: int,
    end: int,
    classes: npt.NDArray[np.uint8],
    borders: npt.NDArray[np.uint64],
    hashes: npt.NDArray[np.uint64],
    place: int,
) -> tuple[int, int]:
    """Write the hashes of the runs of an ASCII block; return where to go on, and the next place.

    That is where a run begins that the block may cut, or the end. Borders are found without a
    branch: where words end cannot be predicted, and a wrong guess costs as much as ten characters.
    """
    count, inside = np.uint64(0), np.uint8(_SEPARATOR)
    for i in range(np.uint64(at), np.uint64(end)):
        kind = classes[data[i]]  # in ASCII nothing is a unit alone: 0 or 1
        borders[count] = i
        count += np.uint64(kind ^ inside)
        inside = kind
    runs = int(np.int64(count)) >> 1  # never an unsigned number beside a signed: that is a float
    for i in range(runs):
        hashes[place + i] = _ascii_run(data, borders[2 * i], borders[2 * i + 1])
    return (int(np.int64(borders[2 * runs])) if inside else end), place + runs


@inner
def _ascii_run(data: npt.NDArray[np.uint8], at: np.uint64, end: np.uint64) -> np.uint64:
    """Return the hash of a run of ASCII; up to 7 bytes behind it are read too."""
    mixed = _UNIT_SEED
    while True:
        chunk = np.uint64(0)
        for i in range(8):  # one load
            chunk = (chunk << _BYTE) | np.uint64(data[at + np.uint64(i)])
        at += _BYTE
        if at >= end:
            return _mix(mixed, chunk >> (_BYTE * (at - end)))
        mixed = _mix(mixed, chunk)


@inner
def _whole(data: npt.NDArray[np.uint8], start: int, end: int) -> np.uint64:
    """Return the hash of a text without units: its length, then its bytes one by one."""
    mixed = _mix(_TEXT_SEED, np.uint64(end - start))
    for at in range(start, end):
        mixed = _mix(mixed, np.uint64(data[at]))
    return mixed


@inner
def _decode(data: npt.NDArray[np.uint8], at: int) -> tuple[np.int64, np.uint64, int]:
    """Return the code point at `at`, its bytes as a big-endian number, and how many they are."""
    first = np.uint64(data[at])
    if first < 0x80:
        return np.int64(first), first, 1
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    point, raw = np.int64(first) & (0x7F >> size), first
    for i in range(1, size):
        point = (point << 6) | (np.int64(data[at + i]) & 0x3F)
        raw = (raw << np.uint64(8)) | np.uint64(data[at + i])
    return point, raw, size


@inner
def _mix(mixed: np.uint64, chunk: np.uint64) -> np.uint64:
    product = (mixed ^ chunk) * _UNIT_FACTOR
    return product ^ (product >> _HALF)


@inner
def _put(hashes: npt.NDArray[np.uint64], place: int, value: np.uint64) -> int:
    if place < hashes.size:
        hashes[place] = value
    return place + 1


@functools.cache
def folded_points() -> npt.NDArray[np.uint32]:
    """Return for each code point what it folds to: its simple lower case, a blank for white space."""
    points = np.arange(0x110000, dtype="<u4").tobytes().decode("utf-32-le", "surrogatepass")
    # As in `text.folding`: lower case is then one code point for one, wherever it stands.
    lower = points.replace("\u0130", "i").replace("\u03a3", "\u03c3").lower()
    table = np.frombuffer(lower.encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint32)
    # No white space lies beyond U+3000; looking at a million more takes a second.
    table[[i for i in range(0x3001) if points[i].isspace()]] = _BLANK
    return table


@kernel
def fold_points(
    data: npt.NDArray[np.uint8], points: npt.NDArray[np.uint32], out: npt.NDArray[np.uint8]
) -> int:
    """Write the folded text; return its bytes. `out` has half as many more than `data`, and 4.

    A lower-case letter can have a byte more than its capital: U+023A has two, U+2C65 three.
    """
    at, filled, blank = 0, 0, True
    while at < data.size:
        if data[at] < 0x80:
            low = points[data[at]]
            at += 1
        else:
            point, _, size = _decode(data, at)
            low = points[point]
            at += size
        if low < 0x80:
            out[filled] = np.uint8(low)
            filled += not (blank and low == _BLANK)  # without a branch: words end anywhere
            blank = low == _BLANK
        else:
            filled = _encode(low, out, filled)
            blank = False
    return filled - 1 if filled and blank else filled


@inner
def _encode(point: np.uint32, out: npt.NDArray[np.uint8], at: int) -> int:
    """Write a code point beyond ASCII; return the place behind it."""
    size = 2 if point < 0x800 else 3 if point < 0x10000 else 4
    for i in range(size - 1, 0, -1):
        out[at + i] = np.uint8(0x80 | (point & np.uint32(0x3F)))
        point >>= np.uint32(6)
    out[at] = np.uint8(((0xF00 >> size) & 0xFF) | point)
    return at + size


def warm() -> None:
    """Compile every kernel for the types it is used with."""
    data, hashes, counts = (
        np.frombuffer(b"a", np.uint8),
        np.empty(1, np.uint64),
        np.empty(1, np.int64),
    )
    fold_points(data, folded_points(), np.empty(5, np.uint8))
    hash_units(data, np.array([1]), unit_classes("char"), hashes, counts)
