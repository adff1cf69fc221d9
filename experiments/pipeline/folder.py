"""The directory of one run: named by its recipe, locked while it goes on, readable by its owner alone."""

from __future__ import annotations

import fcntl
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pate.errors import DataError, ExecutionError
from pate.experiments.array_files import write_text
from pate.experiments.pipeline.store import Stages, code_digests, digest, private_folder
from pate.experiments.recipes.model import RunRecipe
from pate.experiments.recipes.reading import recipe_text
from pate.experiments.results import FILE

RECIPE, RELEASE, STUDENT, LEDGER_ROWS, LEDGER = "recipe.toml", "release.json", "student.zip", "ledger.json", "ledger.db"
EVALUATION, RESULT, ENVIRONMENT = "evaluation.json", FILE, "environment.json"
LATER_RELEASE = re.compile(r"release-\d+\.json")  # of the second round and those after it
_RUN, _LOCK, _STAGES = "run.json", ".lock", "stages"
_DIGITS = 8


class RunFolder:
    """``out/title-digest``. The same recipe (and, where it names a user's own parts, the same code) has the same directory."""

    def __init__(self, recipe: RunRecipe, out: Path, again: bool = False) -> None:
        facts = recipe.to_dict()
        parts = {name: value for name, value in facts.items() if isinstance(value, dict)}  # a title names no code
        self._digest = digest({"recipe": facts, "code": code_digests(parts)})
        slug = re.sub(r"[^a-z0-9]+", "-", recipe.run_name.lower()).strip("-")[:40] or "run"
        first = out / f"{slug}-{self._digest[:_DIGITS]}"
        takes = [first, *sorted(out.glob(f"{first.name}-*"), key=lambda path: (len(path.name), path.name))]
        self.take = len(takes) + 1 if again and first.exists() else len(takes)
        self.path = first if self.take == 1 else first.with_name(f"{first.name}-{self.take}")
        self.stages = Stages(out / _STAGES)

    def file(self, name: str) -> Path:
        return self.path / name

    @contextmanager
    def opened(self, recipe: RunRecipe) -> Iterator[dict[str, Any]]:
        """Begin, or go on; gives ``run.json``: who runs here and since when. One process at a time."""
        private_folder(self.path)
        with self.file(_LOCK).open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ExecutionError(f"{self.path}: the same recipe is running there now. Wait for it, or stop it.") from None
            if not self.file(_RUN).exists():
                write_text(self.file(RECIPE), recipe_text(recipe))
                begun = datetime.now(UTC).isoformat(timespec="seconds")
                self._write_run({"run_id": secrets.token_hex(8), "recipe": self._digest, "begun": begun, "data": None})
            yield self.run()

    def run(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.file(_RUN).read_text())
        return found

    def remember(self, **facts: Any) -> None:
        """Add to what ``run.json`` says."""
        self._write_run(self.run() | facts)

    def bind_data(self, content: str) -> None:
        """Remember what the data were; an error if they are not what they were when the run began."""
        run = self.run()
        if run["data"] not in (None, content):
            raise DataError(
                f"{self.path}: this run was begun with other data under the same name. Restore them, or begin a run of its own "
                "with --again."
            )
        if run["data"] is None:
            self.remember(data=content)

    def _write_run(self, run: dict[str, Any]) -> None:
        write_text(self.file(_RUN), json.dumps(run, indent=1), 0o600)
