"""How the tests load a user's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pate.experiments.datasets import Split, load

OPTIONS: dict[str, Any] = {"dataset": "ward", "classes": ["well", "sick"]}


def load_from(root: Path, files: dict[str, str], **changes: Any) -> Split:
    return load("files", root, **(OPTIONS | files | changes))
