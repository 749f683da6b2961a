"""An S3 for tests: moto's server in this process, and the variables by which workers find it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

KEYS = {"AWS_ACCESS_KEY_ID": "AKIATESTKEY", "AWS_SECRET_ACCESS_KEY": "a-secret-that-must-not-leak"}


@contextmanager
def s3(bucket: str) -> Iterator[Any]:
    """A client of boto3 whose bucket exists; the environment of this process names the server while it is open."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    said = {**KEYS, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
    try:
        with named(said):
            client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
            client.create_bucket(Bucket=bucket)
            _empty(client, bucket)  # all servers of moto in one process share their buckets
            yield client
            _empty(client, bucket)
            client.close()
    finally:
        server.stop()


def _empty(client: Any, bucket: str) -> None:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        if keys := [{"Key": entry["Key"]} for entry in page.get("Contents", ())]:
            client.delete_objects(Bucket=bucket, Delete={"Objects": keys})


@contextmanager
def named(said: dict[str, str]) -> Iterator[None]:
    """The environment of this process says this, for a while."""
    before = {name: os.environ.get(name) for name in said}
    os.environ.update(said)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)
