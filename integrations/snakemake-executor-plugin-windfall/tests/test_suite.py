"""Snakemake's own tests of executor plug-ins, with the real Snakemake and a server of our own."""

from snakemake.common.tests import TestWorkflowsLocalStorageBase
from snakemake_executor_plugin_windfall import ExecutorSettings


class TestWorkflows(TestWorkflowsLocalStorageBase):
    __test__ = True

    def get_executor(self) -> str:
        return "windfall"

    def get_executor_settings(self) -> ExecutorSettings:
        return ExecutorSettings(slots=2, deadline="10m", keep_logs=True)
