"""Logs as one JSON object a line on standard error. They name events, statuses and times; never a question, label or vote."""

from __future__ import annotations

import json
import logging
import sys
import warnings
from datetime import UTC, datetime
from typing import Any

LOGGER = logging.getLogger("pate.service")
_FACTS = "pate_facts"
LEVELS = ("debug", "info", "warning", "error")


class JsonLines(logging.Formatter):
    """An exception is told by the name of its class alone: its message and its traceback may quote what is private."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        facts: dict[str, Any] = {"time": at, "level": record.levelname.lower()}
        own = getattr(record, _FACTS, None)
        if own is None:  # of a library: its first line, without what was put into it, which may quote anything
            facts |= {"event": "library", "logger": record.name, "message": str(record.msg).partition("\n")[0][:200]}
        else:
            facts |= {"event": record.getMessage(), **own}
        if record.exc_info and record.exc_info[0] is not None:
            facts["error"] = record.exc_info[0].__name__
        return json.dumps(facts)


def log(event: str, level: int = logging.INFO, **facts: Any) -> None:
    LOGGER.log(level, event, extra={_FACTS: facts})


def log_to_standard_error(level: str) -> None:
    """For a process that is a service: every logger of it, uvicorn's too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.WARNING)
    LOGGER.setLevel(level.upper())
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
    logging.getLogger("uvicorn.access").disabled = True
    warnings.showwarning = lambda message, category, *_, **__: log("warning", logging.WARNING, category=category.__name__)
