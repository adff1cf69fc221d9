"""The directory of one run: named by its recipe, locked while it goes on, readable by its owner alone."""

from __future__ import annotations

import fcntl
import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
_TRAINED = ("model.zip", "model.json", "training")  # of baselines: what was paid for, or is, piece by piece
_DIGITS = 8


class RunFolder:
    """``out/title-digest``. The same recipe (and, where it names a user's own parts, the same code) has the same directory.

    again: another take, ``out/title-digest-2``. Without it, the newest take that has answers: one that was refused or stopped
    before it got any hides no earlier one. With it, a take that got none is gone on with.
    """

    def __init__(self, recipe: RunRecipe, out: Path, again: bool = False) -> None:
        facts = recipe.to_dict()
        parts = {name: value for name, value in facts.items() if isinstance(value, dict)}  # a title names no code
        self._digest = digest({"recipe": facts, "code": code_digests(parts)})
        slug = re.sub(r"[^a-z0-9]+", "-", recipe.run_name.lower()).strip("-")[:40] or "run"
        self._first = out / f"{slug}-{self._digest[:_DIGITS]}"
        self.stages = Stages(out / _STAGES)
        self._again = again
        self.take = self._another() if again else self._found()
        self.path = self._place(self.take)

    @property
    def answered(self) -> bool:
        """Whether this take has answers, or a model, that were paid for."""
        return self._has_answers(self.take)

    def _takes(self) -> list[int]:
        """The numbers of those that are there, in order."""
        ends = (path.name.removeprefix(f"{self._first.name}-") for path in self._first.parent.glob(f"{self._first.name}-*"))
        later = sorted(int(end) for end in ends if re.fullmatch(r"[1-9]\d*", end))
        return [1, *later] if self._first.exists() else later

    def _place(self, take: int) -> Path:
        return self._first if take == 1 else self._first.with_name(f"{self._first.name}-{take}")

    def _found(self) -> int:
        takes = self._takes() or [1]
        return next((take for take in reversed(takes) if self._has_answers(take)), takes[-1])

    def _another(self) -> int:
        takes = self._takes()
        newest = takes[-1] if takes else 0
        empty = newest > 1 and not self._has_answers(newest) and not _in_use(self._place(newest))
        return newest if empty else newest + 1

    def _has_answers(self, take: int) -> bool:
        folder = self._place(take)
        if any((folder / name).exists() for name in (RESULT, RELEASE, *_TRAINED)):
            return True
        with suppress(OSError, ValueError):  # a run that was killed between the stage and its own copy of the answers
            run = json.loads((folder / _RUN).read_text())
            return any((self.stages.root / name / RELEASE).exists() for name in run.get("asked", []))
        return False

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
            if not self._again or self.answered:
                raise DataError(
                    f"{self.path}: this run was begun with other data under the same name. Restore them, or begin a run of its "
                    "own with --again."
                )
            run["data"] = None  # a take that got no answers begins anew with what the data are now, under a name of its own
            self.remember(run_id=secrets.token_hex(8))
        if run["data"] is None:
            self.remember(data=content)

    def _write_run(self, run: dict[str, Any]) -> None:
        write_text(self.file(_RUN), json.dumps(run, indent=1), 0o600)


def _in_use(folder: Path) -> bool:
    """Whether a process runs there."""
    try:
        with (folder / _LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
