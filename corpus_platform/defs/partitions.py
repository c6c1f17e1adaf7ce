"""The one partitions definition: a partition is a shard, `<crawl>/<shard>`.

Keys are only ever added, and only by what reads the registry.
"""

import dagster as dg

__all__ = ["SHARDS", "SHARDS_NAME"]

SHARDS_NAME = "shards"
SHARDS = dg.DynamicPartitionsDefinition(name=SHARDS_NAME)
