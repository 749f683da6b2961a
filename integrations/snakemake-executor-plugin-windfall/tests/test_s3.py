"""Snakemake's own tests of executor plug-ins without shared files: everything goes through an S3, moto's."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from snakemake.common.tests import TestWorkflowsMinioPlayStorageBase
from snakemake_executor_plugin_windfall import ExecutorSettings


class TestWorkflows(TestWorkflowsMinioPlayStorageBase):
    __test__ = True

    @pytest.fixture(autouse=True, scope="class")
    @classmethod
    def s3(cls) -> Iterator[None]:
        """The server; and, as on a host of its own, jobs find the Python with Snakemake by the PATH."""
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        cls.server = server
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
            yield
        server.stop()

    @property
    def endpoint_url(self) -> str:
        return "http://{}:{}".format(*self.server.get_host_and_port())

    def get_executor(self) -> str:
        return "windfall"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings(slots=2, deadline="10m", keep_logs=True)

    def get_assume_shared_fs(self) -> bool:
        return False
