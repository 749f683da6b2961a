"""How large files in stores are, and where they lie: asked of the stores when a job that is planned is read.

Touches the network. What cannot be asked (no obstore, no credentials, no such file) is left out, with a remark: hosts
may have credentials that the one who submits has not.
"""

from __future__ import annotations

import contextlib
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from urllib.parse import urlsplit

from msgspec.structs import replace

from windfall.bags.remote_files import destination
from windfall.bags.spec import InputFile, JobSpec

_TIMEOUT_S = 10.0
MOST_ASKED = 100
"""Files that are asked for; further ones are taken to be as large on average."""


def measured(spec: JobSpec, of_tasks: Sequence[InputFile] = (), count: int = 0) -> tuple[JobSpec, list[str]]:
    """The job with the gigabytes that each machine and each task fetches, by region; and remarks on what is not known.

    `of_tasks`: inputs of single tasks of its `count`. What the job says itself of a region (`data`) stays; what it says
    of outputs is added, in the region of the store that they go to.
    """
    of_machines, remarks = _by_region([file for file in spec.inputs if file.url])
    in_all, more = _by_region([file for file in of_tasks if file.url])
    of_task = {region: gb / count for region, gb in in_all.items() if count}
    for region, gb in spec.task_data_gb.items():
        where = region or _region_of_outputs(spec.outputs)
        of_task[where] = of_task.get(where, 0.0) + gb
    return replace(spec, data_gb={**of_machines, **spec.data_gb}, task_data_gb=of_task), remarks + more


def _by_region(files: Sequence[InputFile]) -> tuple[dict[str, float], list[str]]:
    found: dict[str, float] = {}
    remarks: list[str] = []
    regions: dict[str, str] = {}
    for file in files[:MOST_ASKED]:
        try:
            size = _size(file)
        except Exception as error:
            remarks.append(f"the size of {file.url} is not known, and plans do not count it: {_said(error)}")
            continue
        place = _bucket(file.url)
        if place not in regions:
            regions[place] = region_of(file.url)
        found[regions[place]] = found.get(regions[place], 0.0) + size / 1e9
    if len(files) > MOST_ASKED:
        # The others are taken to be as large on average.
        found = {region: gb * len(files) / MOST_ASKED for region, gb in found.items()}
    return found, remarks


def _region_of_outputs(outputs: Sequence[str]) -> str:
    """The region of the first store that outputs go to; empty if it is not known."""
    addresses = (address for _, address in map(destination, outputs) if address)
    bucket = next(map(_bucket, addresses), "")
    return "" if not bucket or "{" in bucket else region_of(bucket)


def _size(file: InputFile) -> int:
    if file.size:
        return file.size
    from windfall.worker.transport.stores import look

    return look(file.row[1] if isinstance(file.row[1], str) else file.url).size


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _bucket(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def region_of(url: str) -> str:
    """The region of an S3 bucket, which S3 says to everybody; empty for other stores, and where nobody answers."""
    parts = urlsplit(url)
    if parts.scheme != "s3":
        return ""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    address = f"{endpoint.rstrip('/')}/{parts.netloc}" if endpoint else f"https://{parts.netloc}.s3.amazonaws.com/"
    request = urllib.request.Request(address, method="HEAD")
    with contextlib.suppress(OSError, ValueError):
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                return answer.headers.get("x-amz-bucket-region") or ""
        except urllib.error.HTTPError as error:  # a bucket that may not be read says it, too
            return error.headers.get("x-amz-bucket-region") or ""
    return ""
