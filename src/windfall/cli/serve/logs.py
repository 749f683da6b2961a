"""Log lines of `windfall server`: for people, or a JSON object each. Touches the standard error."""

from __future__ import annotations

import json
import logging


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


def set_up(kind: str) -> None:
    handler = logging.StreamHandler()
    people = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if kind == "json" else people)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
