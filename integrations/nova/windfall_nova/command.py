"""`windfall-nova-scheduler`: nova-scheduler with our manager, started like the original. Touches Nova's table of
managers, in this process only."""

from __future__ import annotations

MANAGER = "windfall_nova.manager.PreemptingSchedulerManager"


def install() -> None:
    """From now on, a scheduler that is made in this process has our manager."""
    from nova import service

    service.SERVICE_MANAGERS["nova-scheduler"] = MANAGER


def main() -> None:
    from nova.cmd import scheduler  # patches the process for its concurrency mode, as the original does

    install()
    scheduler.main()
