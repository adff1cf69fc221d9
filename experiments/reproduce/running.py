"""Run the cases of a study with every seed, and keep what was found in one file."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pate.errors import DataError
from pate.execution import Executor
from pate.experiments.array_files import write_text
from pate.experiments.baselines.dpsgd.launch import launch_dpsgd
from pate.experiments.baselines.erm.launch import launch_erm
from pate.experiments.pipeline.folder import RESULT, RunFolder
from pate.experiments.pipeline.launch import launch
from pate.experiments.pipeline.store import private_folder
from pate.experiments.pipeline.summary import environment
from pate.experiments.recipes.checking import with_noise
from pate.experiments.recipes.model import DpsgdRecipe, ErmRecipe, RunRecipe
from pate.experiments.recipes.reading import change, check_recipe, load_tables
from pate.experiments.reproduce.studies import Case, Study
from pate.experiments.results import Result
from pate.progress import Show

SEEDS = (0, 1, 2)
_SELF_SUPERVISED = "contrastive"
_CODE, _UNKNOWN = "code.txt", "unknown"


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Point(_Facts):
    """One run. Epsilons are of a simulation on public benchmark data: what a release would cost.

    commit: of the code that ran; several where a run was stopped and went on later. None in files from before it was kept.
    """

    seed: int
    accuracy: float
    balanced_accuracy: float
    auc: float | None
    majority: float
    tested: int
    epsilon: float
    epsilon_dependent: float | None
    epsilon_2018: float | None
    labels_right: float | None
    seconds: float
    commit: str | None = None


class Found(_Facts):
    """A case and its runs."""

    line: str
    recipe: str
    kind: str
    protocol: str
    sweep: str
    value: float
    changes: dict[str, Any]
    mechanism: dict[str, Any]
    points: list[Point]


class StudyResult(_Facts):
    """What `pate reproduce` found, and by what it was found.

    commit: of the code that wrote this; runs that an earlier one had finished say so in their points.
    """

    format: Literal["pate-study"] = "pate-study"
    study: str
    quick: bool
    delta: float
    seeds: list[int]
    commit: str
    changed_since_commit: bool
    created: str
    machine: str
    environment: dict[str, str]
    cases: list[Found]

    @property
    def code(self) -> str:
        return named_code(self.commit, self.changed_since_commit)

    @property
    def code_of_runs(self) -> list[str]:
        """Each code that made some of the points."""
        return list(dict.fromkeys(point.commit or self.code for case in self.cases for point in case.points))

    @classmethod
    def read(cls, path: Path) -> StudyResult:
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise DataError(f"{path}: it cannot be read ({error.strerror or error}). Run `pate reproduce` first.") from error
        except ValidationError as error:
            raise DataError(f"{path}: not a result of `pate reproduce` ({error.errors()[0]['msg']}). Run it again.") from None


def cases_of(study: Study, quick: bool) -> tuple[Case, ...]:
    """quick: without the trade-offs, and of each line the last budget of each protocol only."""
    if not quick:
        return study.cases
    last = {(case.line, case.protocol): case for case in study.cases if not case.sweep}
    return tuple(last.values())


def run_study(
    study: Study,
    *,
    data: Path | None,
    out: Path,
    seeds: Sequence[int] = SEEDS,
    quick: bool = False,
    executor: Executor | None = None,
    show: Show = "auto",
    say: Callable[[str], None] = lambda _: None,
) -> StudyResult:
    """Runs that are finished in ``out`` are found there and not done again; each point says by which code it was made."""
    cases = cases_of(study, quick)
    found = []
    commit, changed = code_state()
    for number, case in enumerate(cases, 1):
        results = []
        for seed in seeds:
            say(f"{study.name} [{number}/{len(cases)}] {_told(case)}, seed {seed}")
            results.append(_run(case, seed, data, out, executor, show, named_code(commit, changed)))
        found.append(
            Found(
                **{key: getattr(case, key) for key in ("line", "recipe", "kind", "protocol", "sweep", "value")},
                changes=dict(case.changes),
                mechanism=results[0][0].privacy.mechanism,
                points=[_point(result, seed, code) for (result, code), seed in zip(results, seeds, strict=True)],
            )
        )
    return StudyResult(
        study=study.name,
        quick=quick,
        delta=results[0][0].privacy.delta,
        seeds=list(seeds),
        commit=commit,
        changed_since_commit=changed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        machine=machine(),
        environment=environment(),
        cases=found,
    )


def write_study(result: StudyResult, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.study}.json"
    write_text(path, result.model_dump_json(indent=1) + "\n")
    return path


def _told(case: Case) -> str:
    if case.sweep:
        return f"{case.recipe} with {case.sweep} {case.value:g}"
    epsilon = case.changes.get("privacy.epsilon")
    return " ".join(filter(None, (case.line, case.protocol, "" if epsilon is None else f"at epsilon {epsilon:g}")))


def tables_of(case: Case, seed: int) -> dict[str, Any]:
    """The recipe of one run. What is learnt without labels is learnt anew with every seed."""
    subject, tables = load_tables(case.recipe)
    for path, value in case.changes.items():
        change(tables, path, value, subject)
    tables["seed"] = seed
    if case.kind == "pate" and tables.get("features", {}).get("name") == _SELF_SUPERVISED:
        tables["features"]["seed"] = seed
        if tables["student"]["model"] in ("propagation", "spreading"):
            tables["student"]["features"] = {"name": _SELF_SUPERVISED, "settings": {"seed": seed}}
    return tables


def _run(
    case: Case, seed: int, data: Path | None, out: Path, executor: Executor | None, show: Show, code: str
) -> tuple[Result, str]:
    tables, subject = tables_of(case, seed), f"the case {_told(case)!r}"
    if case.kind == "dpsgd":
        baseline = check_recipe(tables, subject, DpsgdRecipe)
        return _kept(baseline, out, code, lambda: launch_dpsgd(baseline, data=data, out=out, show=show).result)
    if case.kind == "erm":
        linear = check_recipe(tables, subject, ErmRecipe)
        return _kept(linear, out, code, lambda: launch_erm(linear, data=data, out=out, show=show).result)
    recipe = with_noise(check_recipe(tables, subject))
    return _kept(recipe, out, code, lambda: launch(recipe, data=data, out=out, executor=executor, show=show).result)


def _kept(recipe: RunRecipe, out: Path, code: str, go: Callable[[], Result]) -> tuple[Result, str]:
    """A finished run is read, not gone through again: its times are those of the work, and its code is the one of then."""
    folder = RunFolder(recipe, out)
    note, begun = folder.file(_CODE), folder.path.exists()
    before = note.read_text("utf-8").split("\n") if note.exists() else [_UNKNOWN] if begun else []
    if folder.file(RESULT).exists():
        return Result.read(folder.path), "; ".join(before)
    private_folder(folder.path)
    made_by = list(dict.fromkeys([*before, code]))
    write_text(note, "\n".join(made_by))
    return go(), "; ".join(made_by)


def _point(result: Result, seed: int, code: str) -> Point:
    test, privacy = result.evaluation, result.privacy
    assert test is not None  # every benchmark has one
    private = privacy.private_published or {}
    training = privacy.training
    epsilon = privacy.promised
    if training is not None and training.epsilon_pld is not None:
        epsilon = training.epsilon_pld
    return Point(
        seed=seed,
        accuracy=test.accuracy,
        balanced_accuracy=test.balanced_accuracy,
        auc=test.auc,
        majority=test.majority,
        tested=test.tested,
        epsilon=epsilon,
        epsilon_dependent=privacy.data_dependent if privacy.participation is None else None,
        epsilon_2018=private.get("theorem6"),
        labels_right=None if result.label_noise is None else result.label_noise.right,
        seconds=result.seconds,
        commit=code,
    )


def machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"


def named_code(commit: str, changed: bool) -> str:
    return f"{commit}, with changes not yet committed" if changed else commit


def code_state(file: Path = Path(__file__)) -> tuple[str, bool]:
    """The commit of the checkout that this package is in, and whether its code was changed since; unknown without one."""
    here = file.resolve()

    def git(*words: str) -> str:
        run = subprocess.run(["git", "-C", str(here.parent), *words], capture_output=True, text=True, check=True)
        return run.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "--", here.name)  # else it was installed somewhere inside another project's checkout
        code = (":/*.py", ":/*.toml", ":/*.npz")  # the table of bounds is code, too
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no", "--", *code))
    except (OSError, subprocess.CalledProcessError):
        return _UNKNOWN, False
