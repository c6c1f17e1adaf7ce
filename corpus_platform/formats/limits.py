"""What a shard may swell to: plain bytes by themselves, and per byte as stored.

A single record is bounded by `clean.max_record_bytes` wherever it is read, whatever its ratio: one
that is longer is rejected without being held. These limits are for what bounds no memory but time.
"""

from corpus_platform.config import ReadSettings
from corpus_platform.errors import DamagedShard

__all__ = ["JUDGED_FROM_BYTES", "refuse_bomb"]

# Plain bytes below which the ratio proves nothing: one page of one letter has any ratio, and so
# much is read in a second.
JUDGED_FROM_BYTES = 256 << 20


def refuse_bomb(
    plain: int, stored: int, limits: ReadSettings, *, shard: str, where: str, offset: int
) -> None:
    """Raise DamagedShard when `stored` bytes of a shard have become too many plain ones.

    `where` says what was being read, and `offset` at which byte as stored.
    """
    if plain > limits.max_shard_bytes:
        limit = f"`read.max_shard_bytes` = {limits.max_shard_bytes}"
        what = f"{plain} plain bytes"
    elif plain > JUDGED_FROM_BYTES and plain > limits.max_ratio * stored:
        limit = f"`read.max_ratio` = {limits.max_ratio}"
        what = (
            f"{plain} plain bytes of {stored} stored ones, {plain // max(stored, 1)} times as many"
        )
    else:
        return
    reason = (
        f"{what} at {where}, byte {offset} of the file; the limit is {limit}:"
        " raise it to read the shard, or leave it out with `exclude`"
    )
    raise DamagedShard(shard, reason=reason, offset=offset)
