"""Log lines of `windfall server`: for people, or a JSON object each. Touches the standard error, or a file."""

from __future__ import annotations

import json
import logging
from logging.handlers import RotatingFileHandler

from windfall.errors import BadInput

FILE_BYTES, FILES_KEPT = 16 << 20, 5


class JsonLines(logging.Formatter):
    """One object a line: `t` (Unix seconds), `level`, `logger`, `message`, and `error` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, object] = {
            "t": round(record.created, 6),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            told["error"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False)


def set_up(kind: str, file: str | None = None) -> None:
    """Log to the standard error, or to a file that is followed by a new one before it becomes large."""
    handler: logging.Handler = logging.StreamHandler()
    if file is not None:
        try:
            handler = RotatingFileHandler(file, maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8")
        except OSError as error:
            raise BadInput(f"--log-file {file}: {error.strerror or error}") from None
    people = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if kind == "json" else people)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
