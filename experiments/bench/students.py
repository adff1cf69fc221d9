"""How well, and how fast, does each student learn from a few labels? One table of every student, data set and noise."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from rich.table import Table

from pate.errors import ExecutionError, ParameterError
from pate.execution import Executor, Lost, OnRay, Serial, Task
from pate.execution.base import Payload, Shared, Value
from pate.experiments.bench.student_cells import Cell, learner, run_cell
from pate.experiments.bench.student_questions import PROBLEMS, Subject, ask
from pate.progress import duration
from pate.references import did_you_mean

Report = Callable[[str], None]
_FORMAT = 1
_TIMES = {"pre-training s": "pretraining_seconds", "fit s": "fit_seconds", "total s": "total_seconds"}
_STAGES = ("questions", "cells")


def run(
    datasets: Sequence[str] = ("mnist", "fashion-mnist", "adult"),
    students: Sequence[str] | None = None,
    noises: Sequence[float] = (0.0, 0.05, 0.1),
    seeds: int = 3,
    *,
    quick: bool = False,
    workers: int = 2,
    root: Path | None = None,
    out: Path | None = None,
    report: Report = lambda line: None,
) -> list[dict[str, Any]]:
    """A row for each data set, kind of labels and student: accuracy by seed, and the seconds it took.

    students: all that suit a data set unless given. noises: shares of wrong labels, where no teachers answer.
    quick: one seed and a few steps, to see that it runs. workers: processes, of one thread each.
    out: a JSON file, written as cells finish; what it holds already is not done again.
    """
    wanted = {dataset: _students_for(dataset, students) for dataset in datasets}
    if not any(wanted.values()):
        raise ParameterError(f"None of the students {', '.join(students or ())} is for {', '.join(datasets)}.")
    subjects = [
        Subject(dataset, seed, tuple(noises), None if root is None else str(root), quick)
        for dataset, found in wanted.items()
        for seed in range(1 if quick else seeds)
        if found
    ]
    notebook = Notebook(out)
    with (
        tempfile.TemporaryDirectory(prefix="pate-bench-") as folder,
        Serial() if workers == 1 else OnRay(workers=workers) as executor,
    ):
        bench = _Bench(notebook, executor, report, folder)
        bench.ask(subjects)
        cells = bench.cells(subjects, wanted)
        bench.run(cells)
    return summary(cells, notebook)


class _Bench:
    """The two stages, each of tasks that do not depend on one another."""

    def __init__(self, notebook: Notebook, executor: Executor, report: Report, folder: str) -> None:
        self._notebook = notebook
        self._executor = executor
        self._report = report
        self._folder = folder

    def ask(self, subjects: Sequence[Subject]) -> None:
        """Choose and answer the queries of every subject."""
        missing = [subject for subject in subjects if subject.key not in self._notebook.questions]
        for subject, questions in self._outcomes("choosing queries", ask, missing):
            self._notebook.questions[subject.key] = questions
            self._notebook.write()
            self._report(f"{subject.key}: {len(questions['queries'])} queries chosen in {duration(questions['seconds'])}")

    def cells(self, subjects: Sequence[Subject], wanted: Mapping[str, Sequence[str]]) -> list[Cell]:
        questions = self._notebook.questions
        return [
            Cell(
                subject,
                name,
                labels,
                tuple(questions[subject.key]["queries"]),
                questions[subject.key]["releases"][labels],
                # Of its own, so that no student finds done what another one fitted.
                str(Path(self._folder, subject.dataset, name.replace(":", "."))),
            )
            for subject in subjects
            for labels in subject.labels
            for name in wanted[subject.dataset]
        ]

    def run(self, cells: Sequence[Cell]) -> None:
        missing = [cell for cell in cells if not self._notebook.has(cell)]
        if len(missing) < len(cells):
            self._report(f"{len(cells) - len(missing)} of {len(cells)} cells are done already")
        for done, (cell, row) in enumerate(self._outcomes("students", run_cell, missing), 1):
            self._notebook.cells[cell.key] = _identity(cell) | row
            self._notebook.write()
            said = f"failed: {row['error']}" if row["error"] else f"{row['accuracy']:.2%} in {duration(row['fit_seconds'])}"
            self._report(f"{done} of {len(missing)}: {cell.key}: {said}")

    def _outcomes(
        self, stage: str, work: Callable[[Payload, Shared], Value], payloads: Sequence[Payload]
    ) -> Iterator[tuple[Payload, Value]]:
        tasks = [Task(place, payload) for place, payload in enumerate(payloads)]
        for outcome in self._executor.run(work, tasks, {}):
            if isinstance(outcome, Lost):
                raise ExecutionError(
                    f"{stage}: a process died ({outcome.reason}). What is done is in --out; run again with fewer --workers."
                )
            yield payloads[outcome.key], outcome.value


class Notebook:
    """What is done so far; in a file, if there is one, that is whole at any moment."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.questions: dict[str, dict[str, Any]] = {}
        self.cells: dict[str, dict[str, Any]] = {}
        if path is not None and path.exists():
            try:
                found = json.loads(path.read_text("utf-8"))
                if found["format"] != _FORMAT:
                    raise KeyError(f"format {found['format']}")
                self.questions, self.cells = (found[key] for key in _STAGES)
            except (ValueError, KeyError, TypeError) as error:
                raise ParameterError(
                    f"--out {path} exists and holds no results of this benchmark ({error}). Name another file, or move it away."
                ) from error

    def write(self) -> None:
        if self.path is None:
            return
        temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        found = dict(zip(_STAGES, (self.questions, self.cells), strict=True))
        temporary.write_text(json.dumps({"format": _FORMAT, **found}, indent=1), "utf-8")
        temporary.replace(self.path)

    def has(self, cell: Cell) -> bool:
        """Whether this cell is done: with these settings and these answers, not with those of another day."""
        found = self.cells.get(cell.key)
        return found is not None and not found["error"] and _comparable(found) == _comparable(_identity(cell))


def _identity(cell: Cell) -> dict[str, Any]:
    settings = learner(cell.student, cell.subject).settings()
    return {"settings": settings, "queries": list(cell.queries), "release": cell.release}


def _comparable(row: dict[str, Any]) -> str:
    return json.dumps({key: row[key] for key in ("settings", "queries", "release")}, sort_keys=True)


def _students_for(dataset: str, students: Sequence[str] | None) -> tuple[str, ...]:
    """Those named that suit the data set, and every "package.module:Class"."""
    if dataset not in PROBLEMS:
        raise ParameterError(
            f"There is no benchmark on {dataset!r}{did_you_mean(dataset, PROBLEMS)} There are: {', '.join(PROBLEMS)}."
        )
    suited = PROBLEMS[dataset].students
    return suited if students is None else tuple(name for name in students if name in suited or ":" in name)


def summary(cells: Sequence[Cell], notebook: Notebook) -> list[dict[str, Any]]:
    """The seeds of each data set, kind of labels and student in one row."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.subject.dataset, cell.labels, cell.student), []).append(cell)
    learners: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        learners.setdefault((cell.subject.dataset, cell.student), []).append(cell)
    before = {key: _pretraining_seconds(group, notebook) for key, group in learners.items()}
    return [_row(*key, group, before[key[0], key[2]], notebook) for key, group in groups.items()]


def _row(dataset: str, labels: str, name: str, cells: Sequence[Cell], pretraining: float, notebook: Notebook) -> dict[str, Any]:
    found = [notebook.cells[cell.key] for cell in cells]
    good = [row for row in found if not row["error"]]
    fit = _mean([row["fit_seconds"] for row in good])
    return {
        "dataset": dataset,
        "labels": labels,
        "queries": len(cells[0].queries),
        "student": name,
        "accuracy": _mean([row["accuracy"] for row in good]),
        "accuracies": [row["accuracy"] for row in good],
        "auc": _mean([row["auc"] for row in good if row["auc"] is not None]),
        "majority": _mean([row["majority"] for row in good]),
        "query_seconds": mean(notebook.questions[cell.subject.key]["seconds"] for cell in cells),
        "pretraining_seconds": pretraining,
        "fit_seconds": fit,
        "total_seconds": None if fit is None else pretraining + fit,
        "failures": [row["error"] for row in found if row["error"]],
    }


def _pretraining_seconds(cells: Sequence[Cell], notebook: Notebook) -> float:
    """Of the cell that had to do it: the student's other cells with the same features find them in its folder."""
    rows = (notebook.cells[cell.key] for cell in cells)
    return max((row["pretraining_seconds"] for row in rows if not row["error"]), default=0.0)


def _mean(values: Sequence[float]) -> float | None:
    return mean(values) if values else None


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows of :func:`run` as a table for people: one under another for each data set and kind of labels."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["dataset"], row["labels"]), []).append(row)
    result = Table.grid()
    result.add_row(
        "Accuracy on a test split that is opened once, after fitting; means over seeds. Total: pre-training and fit."
    )
    for (dataset, labels), group in groups.items():
        majority = next((f", majority {row['majority']:.1%}" for row in group if row["majority"] is not None), "")
        chosen = f"{group[0]['queries']} queries, chosen in {duration(group[0]['query_seconds'])}"
        part = Table(title=f"{dataset}, labels {labels}: {chosen}{majority}", title_justify="left")
        for column in ("student", "accuracy %", "each seed", "AUC", *_TIMES):
            part.add_column(column, justify="left" if column == "student" else "right")
        for row in group:
            part.add_row(
                row["student"],
                "failed" if row["accuracy"] is None else f"{100 * row['accuracy']:.2f}",
                " ".join(f"{100 * each:.1f}" for each in row["accuracies"]) or row["failures"][0][:60],
                "" if row["auc"] is None else f"{row['auc']:.3f}",
                *("" if row[key] is None else f"{row[key]:.1f}" for key in _TIMES.values()),
            )
        result.add_row(part)
    return result
