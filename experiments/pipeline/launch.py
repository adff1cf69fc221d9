"""One run, from data to report. Whatever is killed when, the same command goes on where it was and asks nothing twice."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pate.aggregators import Aggregator
from pate.arrays import IntArray
from pate.errors import DataError
from pate.execution import Executor, OnRay
from pate.experiments.array_files import write_text
from pate.experiments.datasets import Split
from pate.experiments.datasets.own_files import Files
from pate.experiments.datasets.registry import data_root
from pate.experiments.evaluation import evaluate
from pate.experiments.pipeline import folder as files
from pate.experiments.pipeline.answering import Desk, entry_facts
from pate.experiments.pipeline.folder import RunFolder
from pate.experiments.pipeline.store import digest
from pate.experiments.pipeline.summary import Facts, Tested, environment, summarise
from pate.experiments.pipeline.telling import Teller
from pate.experiments.pipeline.voting import Material, Voting, plurality
from pate.experiments.recipes.checking import make_mechanism, make_source, make_student, mode_of, with_noise
from pate.experiments.recipes.model import Recipe, RunRecipe
from pate.experiments.recipes.reading import find_recipe, read_recipe
from pate.experiments.release_files import read_release, release_text
from pate.experiments.reports.writing import write_all
from pate.experiments.results import Evaluation, Result, UpperBounds
from pate.experiments.verification import verified
from pate.extras import require_all
from pate.progress import Show
from pate.release import Electorate, Mode, Release
from pate.student import OneClassWarning, Student
from pate.teachers import Ensemble
from pate.teachers.registry import teacher_family
from pate.teachers.resuming import references_in
from pate.votes import Votes

DEFAULT_OUT = Path("runs")
# What a run will need sooner or later: told before anything is read, trained or paid for.
_NEEDED = {"sklearn": "train", "matplotlib": "plot", "jinja2": "plot"}


@dataclass(frozen=True)
class Finished:
    """A run that is done: what it found, and where everything lies."""

    result: Result
    folder: Path


def run(
    recipe: str | Path | Mapping[str, Any],
    *,
    data: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] = DEFAULT_OUT,
    executor: Executor | None = None,
    show: Show = "auto",
    allow_unverified: bool = False,
    again: bool = False,
    **overrides: Any,
) -> Result:
    """Run a recipe, built-in by name, a .toml file or nested tables: private data in, a student and its epsilon out.

    overrides: changes to the recipe: ``aggregator={"sigma": 20}`` or ``aggregator__sigma=20``.
    data: directory of the data sets, else $PATE_DATA. out: where runs are kept, each in a directory of its own.
    executor: all cores of this machine on Ray unless given. again: a run of its own, though the same one is there.

    The files are in ``out``; :func:`launch` also says in which directory.
    """
    base = None if isinstance(recipe, Mapping) else find_recipe(recipe).parent
    finished = launch(
        read_recipe(recipe, overrides),
        base=base,
        data=data,
        out=Path(out),
        executor=executor,
        show=show,
        allow_unverified=allow_unverified,
        again=again,
    )
    return finished.result


def launch(
    recipe: Recipe,
    *,
    base: Path | None = None,
    data: str | os.PathLike[str] | None = None,
    out: Path = DEFAULT_OUT,
    executor: Executor | None = None,
    show: Show = "auto",
    allow_unverified: bool = False,
    again: bool = False,
) -> Finished:
    """As :func:`run`, from a checked recipe. base: the directory that its own files are named from."""
    require_all(_NEEDED if executor is not None else {**_NEEDED, "ray": "ray"})
    recipe = with_noise(recipe)
    if recipe.aggregator.remote:
        from pate.experiments.pipeline.remote import launch_remote  # which is made of what stands here

        return launch_remote(recipe, base=base, data=data, out=out, show=show, again=again)
    folder = RunFolder(recipe, out, again)
    with executor or OnRay() as workers:
        run = Run(recipe, folder, workers, Teller(show))
        run.load(base, data)
        run.check(allow_unverified)
        with folder.opened(recipe):  # only now is anything written
            return Finished(run.all(), folder.path)


def votes_of(recipe: Recipe, base: Path | None, data: Any, out: Path, executor: Executor, show: Show) -> None:
    """The stages up to the votes, so that runs which differ in what comes after share them."""
    run = Run(with_noise(recipe), RunFolder(recipe, out), executor, Teller(show))
    run.load(base, data)
    run.vote(None)


def load_material(recipe: RunRecipe, base: Path | None, data: str | os.PathLike[str] | None) -> Material:
    """A user's own files are named from the recipe's directory; data sets lie under ``data``."""
    source = make_source(recipe.data)
    if isinstance(source, Files):
        return Material.of(source.load(base or Path()))
    return Material.of(source.load(data_root(data, recipe.data.source) if source.needs_files else Path()))


class Run:
    """The stages in order. What one leaves for the next is an attribute."""

    def __init__(self, recipe: Recipe, folder: RunFolder, executor: Executor, teller: Teller) -> None:
        self._recipe = recipe
        self._folder = folder
        self._executor = executor
        self._teller = teller
        self._mechanism: Aggregator = make_mechanism(recipe.aggregator)
        self._mode: Mode = mode_of(recipe)
        self._warnings: list[str] = []

    def check(self, allow_unverified: bool) -> None:
        """Whether the aggregator may be trusted with these voters."""
        electorate = self._material.electorate(self._recipe)
        self._verified = verified(self._mechanism, self._recipe.aggregator.name, electorate, allow_unverified)

    def all(self) -> Result:
        self._folder.bind_data(digest([self._material.public_digest, self._material.private_digest]))
        private = self._split.private
        self._desk = Desk.of(self._recipe, self._mode, self._folder.file(files.LEDGER), private.fingerprint, private.unit)
        electorate = self._material.electorate(self._recipe)
        rows, votes, ensemble = self.vote(electorate)
        release = self._answer(rows, votes)
        student = self._learn(release, rows)
        tested = self._test(student, ensemble)
        with self._teller.stage("report", "figures, plots and a page to read") as note:
            facts = Facts(
                self._recipe, self._mode, self._verified, self._split, self._mechanism, votes, release, rows, student, ensemble
            )
            result = summarise(facts, self._desk, tested, self._teller.facts, self._warnings, self._folder.run())
            write_text(self._folder.file(files.ENVIRONMENT), json.dumps(environment(), indent=1))
            result.write(self._folder.file(files.RESULT))
            write_all(result, self._folder.path)
            note.text = str(self._folder.path)
        return result

    def load(self, base: Path | None, data: Any) -> None:
        source = self._recipe.data.source
        with self._teller.stage("data", f"reading and checking {source}") as note:
            self._material = load_material(self._recipe, base, data)
            self._split: Split = self._material.split
            note.text = f"{len(self._split.public_x)} public records"  # a log is read by many: no count of private ones

    def vote(self, electorate: Electorate | None) -> tuple[IntArray, Votes, Ensemble | None]:
        """electorate: whose answers must be affordable before anybody is trained; None where nothing will be asked."""
        recipe, teller = self._recipe, self._teller
        voting = Voting(recipe, self._material, self._folder.stages, self._executor, teller)
        self._voting = voting
        with teller.stage("features", "made of public records only, free of privacy cost") as note:
            made = [each for each in (voting.features("queries"), voting.features("teachers")) if each is not None]
            note.text = "; ".join(dict.fromkeys(each.title for each in made)) or "none: the records themselves"
        with teller.stage(
            "queries", f"choosing {recipe.queries.count} public records to ask about, free of privacy cost"
        ) as note:
            rows, note.cached = voting.rows()
        if electorate is not None and not self._is_answered(rows):
            self._desk.afford(self._mechanism, electorate, len(rows))
        ensemble = None
        what = "none to train, records vote themselves"
        if not recipe.teachers.nearest:
            what = f"{recipe.teachers.count} x {recipe.teachers.model}, each on its own part of the private records"
        with teller.stage("teachers", what) as note:
            if not recipe.teachers.nearest:
                ensemble, note.cached = voting.teachers()
        with teller.stage("votes", "counted; they stay in this house") as note:
            votes, note.cached = voting.votes(rows, ensemble)
        return rows, votes, ensemble

    def _answer(self, rows: IntArray, votes: Votes) -> Release:
        file = self._folder.file(files.RELEASE)
        with self._teller.stage("answers", f"charging the ledger, then adding noise: {self._mechanism!r}") as note:
            if self._mode == "simulation":
                release, note.cached = self._desk.simulate(self._mechanism, votes, rows, file)
            elif file.exists():  # whatever became of the stages: these answers are paid for
                release, note.cached = self._paid(file, rows), True
            else:
                release, note.cached, name = self._desk.release(
                    self._mechanism, votes, rows, self._folder.stages, self._question(rows)
                )
                self._folder.remember(paid_as=name)
                write_text(file, release_text(release, rows))
            with self._desk.open() as ledger:
                paid = self._desk.entries(ledger, self._folder.run().get("paid_as"))
            lost = sum(row.kind == "reserve" for row in paid) - 1
            if lost:
                self._warnings.append(f"{lost} earlier tries were charged, and their answers lost when the run was stopped.")
            found = [entry_facts(each, self._recipe.privacy.delta) for each in paid]
            write_text(self._folder.file(files.LEDGER_ROWS), json.dumps(found, indent=1))
            note.text = f"{int(release.answered.sum())} of {len(release)} answered"
        return release

    def _paid(self, file: Path, rows: IntArray) -> Release:
        stored = read_release(file)
        if stored.queries is None or not np.array_equal(rows, stored.queries):  # other versions of libraries may choose others
            raise DataError(
                f"{file}: its answers are about other public records than are chosen now. Go on with the versions of libraries "
                "in environment.json, or begin a run of its own with --again."
            )
        return stored.release

    def _is_answered(self, rows: IntArray) -> bool:
        if self._folder.file(files.RELEASE).exists():
            return True
        return self._mode == "release" and self._desk.has_answers(self._folder.stages, self._question(rows))

    def _question(self, rows: IntArray) -> dict[str, Any]:
        """All that decides what is asked of whom: the same question is answered once. Not by what version of this package."""
        recipe = self._recipe
        return {
            "fingerprint": self._split.private.fingerprint,
            "private": self._material.private_digest,
            "public": self._material.public_digest,
            "queries": rows.tolist(),
            "recipe": recipe.model_dump(mode="json", include={"features", "teachers", "aggregator", "privacy", "seed"}),
            "take": self._folder.take,
        }

    def _learn(self, release: Release, rows: IntArray) -> Student:
        file = self._folder.file(files.STUDENT)
        fresh = make_student(self._recipe.student, self._recipe.seed)
        with self._teller.stage("student", f"{fresh.title}, from public records and the answers alone") as note:
            if file.exists():
                note.cached = True
                return Student.load(file, allow=references_in(self._recipe.student.model_dump(mode="json")))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fitted = fresh.fit(self._split.public_x, release, rows, show=self._teller.show)
            for each in caught:
                if issubclass(each.category, OneClassWarning):
                    self._warnings.append(str(each.message))
            partial = file.with_name(f".{file.name}")
            fitted.save(partial)
            os.replace(partial, file)
            return fitted

    def _test(self, student: Student, ensemble: Ensemble | None) -> Tested:
        file, test = self._folder.file(files.EVALUATION), self._split.test
        bounds = self._recipe.evaluation.upper_bounds
        with self._teller.stage(
            "evaluation", "the test records, opened once" if test else "no test records were given"
        ) as note:
            if test is None:
                return Tested(None, None)
            if file.exists():
                note.cached = True
                found = json.loads(file.read_text())
            else:
                evaluation, x, y = evaluate(student, test, self._split.n_classes)
                found = {"evaluation": evaluation.model_dump(), "upper_bounds": None}
                if bounds:
                    found["upper_bounds"] = self._upper_bounds(x, y, ensemble).model_dump()
                write_text(file, json.dumps(found, indent=1), 0o600)
            upper = found["upper_bounds"]
            return Tested(Evaluation(**found["evaluation"]), None if upper is None else UpperBounds(**upper))

    def _upper_bounds(self, x: Any, y: IntArray, ensemble: Ensemble | None) -> UpperBounds:
        """What could be had without privacy. Looks at private data without noise, because the recipe asked for it."""
        if ensemble is None:
            return UpperBounds(all_data=None, all_data_model=None, plurality=None)
        alone = plurality(self._voting.all_data_teacher().vote(x, executor=self._executor))
        together = plurality(ensemble.vote(x, executor=self._executor))
        return UpperBounds(
            all_data=float((alone == y).mean()),
            all_data_model=repr(teacher_family(self._recipe.teachers.model, self._recipe.teachers.parameters)),
            plurality=float((together == y).mean()),
        )
