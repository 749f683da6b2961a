"""The causes of an attempt's end as codes: the log's format. Pure data."""

from __future__ import annotations

from windfall.wire.messages import BAD_TASK, CANCELLED, CAUSES, DISAGREED, DONE, LOSSES, LOST, NO_CWD, OOM, QUOTA

SUCCESS = CAUSES.index(DONE)
CANCEL = CAUSES.index(CANCELLED)
NO_DIRECTORY = CAUSES.index(NO_CWD)
UNRENDERED = CAUSES.index(BAD_TASK)
DISAGREEMENT = CAUSES.index(DISAGREED)
OVER_QUOTA = CAUSES.index(QUOTA)
OUT_OF_MEMORY = CAUSES.index(OOM)
LOST_CODE = CAUSES.index(LOST)
LOSS_CODES = frozenset(CAUSES.index(cause) for cause in LOSSES)
Loss = tuple[int, int, int, int]
"""(job, task, attempt, verdict)."""
