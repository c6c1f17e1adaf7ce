"""The files of a dedup_clusters artifact by name; what they hold is in `document` and `reports`."""

__all__ = ["CLUSTER_FILE", "COMPARED_FILE", "EDGE_FILE", "LEAK_FILE", "REPORT_FILE"]

CLUSTER_FILE = "clusters.parquet"  # one row a cleaned document, in key order
EDGE_FILE = "edges.parquet"  # verified pairs
COMPARED_FILE = "compared.parquet"  # other pairs that were looked at
LEAK_FILE = "leaks.parquet"  # pairs of a validation and a train document
REPORT_FILE = "report.json"
