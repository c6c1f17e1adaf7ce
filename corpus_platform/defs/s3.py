"""S3 inside Dagster: the client comes from dagster-aws's resource, made when a shard needs it.

Keys and profiles are those of the environment, as for every AWS program. The resource takes no
timeouts: those of boto3 hold, 60 seconds, whatever `download.timeout_seconds` says.
"""

from typing import Any  # boto3's clients are made at run time and have no type

from corpus_platform.config import DownloadSettings, S3Settings

__all__ = ["connect"]


def connect(settings: S3Settings, download: DownloadSettings) -> Any:
    """Return a client for S3 as the settings say."""
    del download
    from dagster_aws.s3 import S3Resource  # takes a second to load, and few corpora need it

    resource = S3Resource(
        endpoint_url=settings.endpoint_url,
        region_name=settings.region,
        use_unsigned_session=settings.anonymous,
        max_attempts=0,  # tries and waits are made outside the client
    )
    client = resource.get_client()
    if settings.endpoint_url is not None:
        client.meta.events.register("before-endpoint-resolution.s3", _bucket_in_path)
    return client


def _bucket_in_path(builtins: dict[str, object], **_: object) -> None:
    """Have URLs say host/bucket/key: other servers than AWS have no host for each bucket."""
    builtins["AWS::S3::ForcePathStyle"] = True
