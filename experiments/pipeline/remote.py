"""A run whose answers come from an aggregator service: private records, teachers and ledger are with their owner."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pate.aggregators import Aggregator, curve_ahead, make_aggregator
from pate.arrays import IntArray
from pate.client import Client
from pate.errors import PateError, RecipeError
from pate.execution import Serial
from pate.experiments.accounting import CONVERSION, NEIGHBOURS
from pate.experiments.array_files import write_text
from pate.experiments.pipeline import folder as files
from pate.experiments.pipeline.folder import RunFolder
from pate.experiments.pipeline.launch import Finished, Run
from pate.experiments.pipeline.summary import Tested, data_facts, environment
from pate.experiments.pipeline.telling import Teller
from pate.experiments.pipeline.voting import Voting
from pate.experiments.recipes.checking import make_source
from pate.experiments.recipes.model import Recipe
from pate.experiments.release_files import read_release, release_text
from pate.experiments.reports.writing import write_all
from pate.experiments.results import LabelNoise, PrivacyFacts, Result
from pate.progress import Show
from pate.release import Release
from pate.student import Student

STAGES = ("data", "features", "queries", "answers", "student", "evaluation", "report")


def launch_remote(recipe: Recipe, *, base: Path | None, data: Any, out: Path, show: Show, again: bool) -> Finished:
    """As :func:`pate.experiments.pipeline.launch.launch`, for ``aggregator.name = "service"``. The token is $PATE_TOKEN."""
    folder = RunFolder(recipe, out, again)
    run = RemoteRun(recipe, folder, Teller(show, STAGES))
    run.load(base, data)
    with folder.opened(recipe):
        return Finished(run.all(), folder.path)


class RemoteRun(Run):
    """The stages of a run without teachers and votes."""

    def __init__(self, recipe: Recipe, folder: RunFolder, teller: Teller) -> None:
        self._recipe, self._folder, self._teller = recipe, folder, teller
        self._executor = Serial()
        self._warnings: list[str] = []
        self._url = str(recipe.aggregator.parameters["url"])

    def all(self) -> Result:
        self._folder.bind_data(self._material.public_digest)
        voting = Voting(self._recipe, self._material, self._folder.stages, self._executor, self._teller)
        with self._teller.stage("features", "made of public records only, free of privacy cost") as note:
            made = voting.features("queries")
            note.text = "none: the records themselves" if made is None else made.title
        count = self._recipe.queries.count
        with self._teller.stage("queries", f"choosing {count} public records to ask about, free of privacy cost") as note:
            rows, note.cached = voting.rows()
        with Client(self._url) as client:
            release, budget = self._ask(client, rows)
        student = self._learn([release], [rows])
        tested = self._test(student, None)
        with self._teller.stage("report", "figures, plots and a page to read") as note:
            result = self._summary(release, rows, student, tested, budget)
            write_text(self._folder.file(files.ENVIRONMENT), json.dumps(environment(), indent=1))
            result.write(self._folder.file(files.RESULT))
            write_all(result, self._folder.path)
            note.text = str(self._folder.path)
        return result

    def _ask(self, client: Client, rows: IntArray) -> tuple[Release, dict[str, Any]]:
        """The answers, under a key of this run: asked again after a crash, they are the same and paid for once."""
        file = self._folder.file(files.RELEASE)
        with self._teller.stage("answers", f"asking {self._url}, which charges its own ledger") as note:
            facts = client.mechanism()
            self._check(facts)
            if file.exists():
                release, note.cached = read_release(file).release, True
            else:
                queries = rows if facts["takes"] == "ids" else self._split.public_x[rows]
                release = client.release(queries, key=f"run {self._folder.run()['run_id']}")
                write_text(file, release_text(release, rows))
            note.text = f"{int(release.answered.sum())} of {len(release)} answered"
            return release, client.budget()

    def _check(self, facts: dict[str, Any]) -> None:
        """Whether the service speaks of these records."""
        public, classes = self._split.public_x, self._split.n_classes
        if facts["classes"] != classes:
            raise RecipeError(f"aggregator.url: the service knows {facts['classes']} classes, the data have {classes}.")
        if facts["takes"] == "ids" and facts.get("pool") != len(public):
            raise RecipeError(
                f"aggregator.url: the service has votes on a pool of {facts.get('pool')} records, and there are {len(public)} "
                "public ones here. Its pool must be these records in this order."
            )
        if facts["takes"] == "inputs" and list(facts.get("shape", ())) != list(public.shape[1:]):
            raise RecipeError(
                f"aggregator.url: the service takes records of shape {facts.get('shape')}, these have {list(public.shape[1:])}."
            )

    def _summary(self, release: Release, rows: IntArray, student: Student, tested: Tested, budget: dict[str, Any]) -> Result:
        recipe, split = self._recipe, self._split
        return Result(
            kind="pate",
            title=recipe.run_name,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            run_id=self._folder.run()["run_id"],
            mode=release.mode,
            stamp=release.stamp,
            verified="unverified" if _known(release) is None else "built-in",
            data=data_facts(split, recipe, tested.evaluation).model_copy(update={"private_records": None, "fingerprint": None}),
            student=student.title,
            teachers=f"{release.electorate.n_teachers} teachers behind a service",
            privacy=self._privacy(release, budget),
            evaluation=tested.evaluation,
            label_noise=self._label_noise(release, rows),
            consensus=None,
            upper_bounds=None,
            stages=list(self._teller.facts),
            warnings=self._warnings,
            environment=environment(),
            seed=recipe.seed,
            test_is_public=split.test_is_public,
        )

    def _label_noise(self, release: Release, rows: IntArray) -> LabelNoise:
        answered, right = release.answered, None
        known = self._split.public_labels
        if make_source(self._recipe.data).benchmark and known is not None and answered.any():
            right = float((known.of(rows[answered]) == release.labels[answered]).mean())
        return LabelNoise(answered=int(answered.sum()), right=right, plurality=None)

    def _privacy(self, release: Release, budget: dict[str, Any]) -> PrivacyFacts:
        epsilon, order = _claim(release, budget)
        if release.mechanism.get("charging") == "realised":
            self._warnings.append(
                "Charged as realised: epsilon here is the worst case; the service's budget is the other valid claim."
            )
        if not order:
            self._warnings.append(
                "What these answers cost by themselves is not known here: epsilon is the service's whole budget."
            )
        return PrivacyFacts(
            delta=float(budget["delta"]),
            data_independent=epsilon,
            data_dependent=None,
            sanitised=None,
            order=order,
            order_at_grid_edge=False,
            budget_epsilon=float(budget["epsilon"]),
            spent=float(budget["spent"]),
            ledger="the service's",
            mechanism=dict(release.mechanism),
            n_teachers=release.electorate.n_teachers,
            participation=None,
            asked=len(release),
            answered=int(release.answered.sum()),
            neighbours=NEIGHBOURS,
            conversion=CONVERSION,
            published={},
            private_published=None,
            curve=None,
        )


def _known(release: Release) -> Aggregator | None:
    """The aggregator that answered, or None where it is not known here."""
    named = dict(release.mechanism)
    try:
        return make_aggregator(str(named.pop("aggregator")), named)
    except PateError:
        return None


def _claim(release: Release, budget: dict[str, Any]) -> tuple[float, float]:
    """An epsilon that covers these answers, and its order, 0 where there is none.

    Their worst case, as if nobody had asked them before: what was realised, summed up, is no claim. Where a batch does not cost
    what its queries cost one by one, the service alone knows in which batches they were answered, and who asked before in view
    of what answers. Of an aggregator that is not known here it is not known either how it is charged. What holds is the budget.
    """
    aggregator = _known(release)
    if aggregator is None or not aggregator.adds_up:
        return float(budget["epsilon"]), 0.0
    found = curve_ahead(aggregator, release.electorate, len(release)).epsilon(float(budget["delta"]))
    return found.epsilon, found.order
