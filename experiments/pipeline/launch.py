"""One run, from data to report. Whatever is killed when, the same command goes on where it was and asks nothing twice."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pate.arrays import IntArray
from pate.execution import Executor, OnRay
from pate.experiments.array_files import write_text
from pate.experiments.datasets import Split
from pate.experiments.datasets.own_files import Files
from pate.experiments.datasets.registry import data_root
from pate.experiments.evaluation import evaluate
from pate.experiments.pipeline import folder as files
from pate.experiments.pipeline.answering import Desk, entry_facts
from pate.experiments.pipeline.folder import RunFolder
from pate.experiments.pipeline.rounds import Round, Rounds, told_of
from pate.experiments.pipeline.sanitised import drawn, planned, sanitised_charges
from pate.experiments.pipeline.store import digest
from pate.experiments.pipeline.summary import Facts, Tested, environment, summarise
from pate.experiments.pipeline.telling import Teller
from pate.experiments.pipeline.voting import Material, Voting, plurality
from pate.experiments.recipes.checking import make_source, make_student, mechanisms_of, mode_of, with_noise
from pate.experiments.recipes.model import Recipe, RunRecipe
from pate.experiments.recipes.reading import find_recipe, read_recipe
from pate.experiments.reports.writing import write_all
from pate.experiments.results import Evaluation, Result, UpperBounds, Verified
from pate.experiments.sanitising import Sanitised
from pate.experiments.verification import verified
from pate.extras import require_all
from pate.progress import Show
from pate.release import Mode, Release
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
    run.votes()


def load_material(recipe: RunRecipe, base: Path | None, data: str | os.PathLike[str] | None) -> Material:
    """A user's own files are named from the recipe's directory; data sets lie under ``data``."""
    source = make_source(recipe.data)
    if isinstance(source, Files):
        split = source.load(base or Path())
    else:
        split = source.load(data_root(data, recipe.data.source) if source.needs_files else Path())
    share = recipe.data.private_share
    return Material.of(split if share is None else split.with_fewer(share))


class Run:
    """The stages in order. What one leaves for the next is an attribute."""

    def __init__(self, recipe: Recipe, folder: RunFolder, executor: Executor, teller: Teller) -> None:
        self._recipe = recipe
        self._folder = folder
        self._executor = executor
        self._teller = teller
        self._mode: Mode = mode_of(recipe)
        self._warnings: list[str] = []
        self._sanitised: Sanitised | None = None

    def check(self, allow_unverified: bool) -> None:
        """Whether the aggregator may be trusted with these voters."""
        electorate, name = self._material.electorate(self._recipe), self._recipe.aggregator.name
        found = {verified(each, name, electorate, allow_unverified) for each in mechanisms_of(self._recipe)}
        self._verified: Verified = next(each for each in ("unverified", "checked", "built-in") if each in found)

    def all(self) -> Result:
        self._folder.bind_data(digest([self._material.public_digest, self._material.private_digest]))
        private = self._split.private
        self._desk = Desk.of(self._recipe, self._mode, self._folder.file(files.LEDGER), private.fingerprint, private.unit)
        rounds, ensemble = self.ask()
        student = self._learn([each.release for each in rounds], [each.rows for each in rounds])
        tested = self._test(student, ensemble)
        with self._teller.stage("report", "figures, plots and a page to read") as note:
            facts = Facts(
                self._recipe, self._mode, self._verified, self._split, tuple(rounds), student, ensemble, self._sanitised
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

    def votes(self) -> None:
        """The stages up to the votes of the first round."""
        voting = self._features()
        rows = self._queries(voting)
        self._count(voting, rows, self._teachers(voting), 0)

    def ask(self) -> tuple[list[Round], Ensemble | None]:
        """Every round, chosen, voted on, paid for and answered. All must be affordable before anybody is trained."""
        voting = self._features()
        self._voting = voting
        self._queries(voting)
        rounds = Rounds(self._recipe, self._mode, self._material, self._folder, voting, self._desk)
        sanitiser = planned(self._recipe, self._material)
        rounds.afford(None if sanitiser is None else sanitiser.curve)
        ensemble = self._teachers(voting)
        answered: list[Round] = []
        for number in range(len(rounds)):
            releases = [each.release for each in answered]
            if number:
                queries = self._recipe.queries
                what = f"choosing {queries.counts[number]} public records by {queries.later_strategy}"
                with self._teller.stage("queries", f"{what}, in view of the answers so far", number) as note:
                    note.cached = rounds.choose(releases).cached
            rows = rounds.choose(releases).rows
            votes = self._count(voting, rows, ensemble, number)
            mechanism = rounds.mechanism(number)
            with self._teller.stage("answers", f"charging the ledger, then adding noise: {mechanism!r}", number) as note:
                release, note.cached = rounds.answer(number, votes)
                note.text = told_of(release)
            answered.append(Round(mechanism, votes, release, rows))
        if sanitiser is not None:
            self._sanitised = drawn(sanitiser, answered[0].votes, self._desk, rounds.paid_as())
        self._show_charges(rounds)
        return answered, ensemble

    def _features(self) -> Voting:
        voting = Voting(self._recipe, self._material, self._folder.stages, self._executor, self._teller)
        with self._teller.stage("features", "made of public records only, free of privacy cost") as note:
            made = [each for each in (voting.features("queries"), voting.features("teachers")) if each is not None]
            note.text = "; ".join(dict.fromkeys(each.title for each in made)) or "none: the records themselves"
        return voting

    def _queries(self, voting: Voting) -> IntArray:
        count = self._recipe.queries.count
        with self._teller.stage("queries", f"choosing {count} public records to ask about, free of privacy cost") as note:
            rows, note.cached = voting.rows()
        return rows

    def _teachers(self, voting: Voting) -> Ensemble | None:
        table, ensemble = self._recipe.teachers, None
        what = "none to train, records vote themselves"
        if not table.nearest:
            what = f"{table.count} x {table.model}, each on its own part of the private records"
        with self._teller.stage("teachers", what) as note:
            if not table.nearest:
                ensemble, note.cached = voting.teachers()
        return ensemble

    def _count(self, voting: Voting, rows: IntArray, ensemble: Ensemble | None, number: int) -> Votes:
        with self._teller.stage("votes", "counted; they stay in this house", number) as note:
            votes, note.cached = voting.votes(rows, ensemble)
        return votes

    def _show_charges(self, rounds: Rounds) -> None:
        """What of the ledger concerns this run, into its directory."""
        with self._desk.open() as ledger:
            paid = self._desk.entries(ledger, rounds.paid_as())
            told = sanitised_charges(ledger, paid)
        lost = sum(row.kind == "reserve" for row in paid) - len(rounds)
        if lost > 0:
            self._warnings.append(f"{lost} earlier tries were charged, and their answers lost when the run was stopped.")
        found = [entry_facts(each, self._recipe.privacy.delta) for each in (*paid, *told)]
        write_text(self._folder.file(files.LEDGER_ROWS), json.dumps(found, indent=1))

    def _learn(self, releases: Sequence[Release], rows: Sequence[IntArray]) -> Student:
        file = self._folder.file(files.STUDENT)
        fresh = make_student(self._recipe.student, self._recipe.seed)
        with self._teller.stage("student", f"{fresh.title}, from public records and the answers alone") as note:
            if file.exists():
                note.cached = True
                return Student.load(file, allow=references_in(self._recipe.student.model_dump(mode="json")))
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                fitted = fresh.fit(self._split.public_x, releases, rows, show=self._teller.show)
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
