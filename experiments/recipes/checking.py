"""What pydantic cannot see: whether the parts that a recipe names exist, take these parameters, and fit together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel

from pate.aggregators import Aggregator, make_aggregator
from pate.errors import MissingExtra, ParameterError, PateError
from pate.experiments.baselines.dpsgd.settings import Settings, check_model_name, make_settings
from pate.experiments.baselines.erm.settings import ErmSettings, check_erm_model, make_erm_settings
from pate.experiments.datasets.base import DatasetSource
from pate.experiments.datasets.registry import source_named
from pate.experiments.planning import least_sigma
from pate.experiments.recipes.model import (
    AUTO,
    AggregatorTable,
    DataTable,
    DpsgdRecipe,
    DpsgdTable,
    ErmRecipe,
    ErmTable,
    FeaturesTable,
    PrivacyTable,
    QueriesTable,
    Recipe,
    RunRecipe,
    StudentTable,
    TeachersTable,
)
from pate.experiments.sanitising import check_covered
from pate.features import Features, features_named
from pate.ledger import Budget
from pate.references import did_you_mean, load_reference
from pate.release import Electorate, Mode
from pate.student import Student, student
from pate.student.queries import NEED_STUDENT, STRATEGIES
from pate.teachers import TeacherFamily, teacher_family

_AUTOMATIC = ("gnmax", "noisy-histogram")
_ANY_VOTERS = 1000  # of the aggregators above no cost depends on it


def make_source(table: DataTable) -> DatasetSource:
    return source_named(table.source, table.parameters)


def make_features(table: FeaturesTable) -> Features:
    return features_named(table.name, table.parameters)


def make_family(table: TeachersTable) -> TeacherFamily[Any]:
    return teacher_family(table.model, table.parameters)


def make_mechanism(table: AggregatorTable) -> Aggregator:
    return make_aggregator(table.name, table.parameters)


def round_table(table: AggregatorTable, number: int) -> AggregatorTable:
    """The aggregator of a round, counted from 0: a list as ``sigma`` has a value for each."""
    sigma = table.parameters.get("sigma")
    if not isinstance(sigma, list):
        return table
    return AggregatorTable(**{**table.model_dump(), "sigma": sigma[number]})


def mechanisms_of(recipe: Recipe) -> tuple[Aggregator, ...]:
    """What answers each round, in order; later ones have yet to be told what the student predicts."""
    first, *later = [make_mechanism(round_table(recipe.aggregator, number)) for number in range(recipe.queries.rounds)]
    return (first.before_student(), *later)


def make_student(table: StudentTable, seed: int) -> Student:
    """``seed`` is the recipe's; one of the student's own goes before it."""
    return student(table.model, table.preset, **{"seed": seed, **table.parameters})


def training_settings(table: DpsgdTable) -> Settings:
    return make_settings(table.parameters)


def erm_settings(table: ErmTable) -> ErmSettings:
    return make_erm_settings(table.parameters)


def mode_of(recipe: RunRecipe) -> Mode:
    """Simulation for public benchmark data, release for all else, unless the recipe says otherwise."""
    if recipe.mode is not None:
        return recipe.mode
    return "simulation" if make_source(recipe.data).benchmark else "release"


def with_noise(recipe: Recipe) -> Recipe:
    """The recipe with a number for ``aggregator.sigma = "auto"``; from the budget and the number of queries alone.

    Every round gets the same share of the budget; where rounds differ in length, each has a sigma of its own.
    """
    if recipe.aggregator.remote or recipe.aggregator.parameters.get("sigma") != AUTO:
        return recipe
    participation = recipe.teachers.votes_per_user or recipe.teachers.votes_per_record if recipe.teachers.nearest else None
    voters = Electorate(recipe.teachers.count or recipe.teachers.voters or _ANY_VOTERS, 2, participation)
    budget = Budget(recipe.privacy.epsilon, recipe.privacy.delta, slack=recipe.privacy.slack)
    counts = recipe.queries.counts
    least = {each: least_sigma(recipe.aggregator.name, each, budget, voters, shares=len(counts)) for each in set(counts)}
    sigma = least[counts[0]] if len(set(least.values())) == 1 else [least[each] for each in counts]
    return recipe.model_copy(update={"aggregator": AggregatorTable(name=recipe.aggregator.name, sigma=sigma)})  # type: ignore[call-arg]


def recipe_problems(recipe: RunRecipe) -> Iterator[str]:
    """Everything that is wrong with a recipe whose tables are well formed."""
    tables = {name: getattr(recipe, name) for name in type(recipe).model_fields}
    sound = True
    for name, table in tables.items():
        for problem in table_problems(table, name):
            sound = False
            yield problem
    if sound:
        yield from _misfits(recipe)


def table_problems(table: Any, name: str) -> list[str]:
    """What is wrong with one table, each beginning with its name."""
    found: list[str] = []
    inner = getattr(table, "features", None)
    if isinstance(inner, FeaturesTable):
        found += table_problems(inner, f"{name}.features")
    if isinstance(table, BaseModel):
        with _collected(found, name):
            _CHECKS.get(type(table), lambda _: None)(table)
    return found


def _misfits(recipe: RunRecipe) -> Iterator[str]:
    """Parts that are sound each for itself, but not together."""
    if recipe.mode == "simulation" and not make_source(recipe.data).benchmark:
        yield (
            "mode: simulation draws noise that can be drawn again, so it is for public benchmark data; these are not. Leave "
            "mode out, or say that the records are public with data.is_benchmark = true"
        )
    if mode_of(recipe) == "release" and (reason := make_source(recipe.data).no_release) is not None:
        yield f"data.{reason}"
    if recipe.data.private_share is not None and mode_of(recipe) != "simulation":
        yield "data.private_share: for simulations only; a release is made from all records, or from other files"
    if recipe.mode == "simulation" and recipe.privacy.ledger is not None:
        yield "privacy.ledger: a simulation keeps its ledger in the run directory; leave the key out"
    declared = training_settings(recipe.dpsgd).rate if isinstance(recipe, DpsgdRecipe) else 1.0
    if declared is None and not make_source(recipe.data).benchmark:
        yield (
            "dpsgd.rate: missing; the sampling rate is published with the run, and lot_size over the number of records would "
            "tell that number exactly, without noise. Declare it, as a round number near that quotient"
        )
    counted = isinstance(recipe, ErmRecipe) and erm_settings(recipe.erm).records is None
    if counted and not make_source(recipe.data).benchmark:
        yield (
            "erm.records: missing; the noise is published with the run, and it would tell the number of records exactly. "
            "Declare it, as a round number near the true one"
        )
    told = isinstance(recipe, Recipe) and recipe.teachers.nearest and recipe.teachers.voters is None
    if told and not make_source(recipe.data).benchmark:
        yield (
            "teachers.voters: missing; the number of voters is published with the answers, and where single records vote it "
            "would tell the number of records exactly, without noise. Declare the most there can be, as a round number"
        )
    if not isinstance(recipe, Recipe):
        if recipe.evaluation.upper_bounds:
            yield "evaluation.upper_bounds: of PATE runs only; a baseline has none"
        if recipe.privacy.sanitise:
            yield "privacy.sanitise: of PATE runs only; the epsilon of a baseline does not depend on the data"
        return
    if recipe.privacy.sanitise:
        yield from _not_sanitised(recipe)
    rounds = recipe.queries.rounds
    if recipe.aggregator.remote:
        if rounds > 1:
            yield "queries.rounds: a service is asked in one round; leave it out"
        return
    sigma = recipe.aggregator.parameters.get("sigma")
    if isinstance(sigma, list) and len(sigma) != rounds:
        yield f"aggregator.sigma: a list has one value for each of the {rounds} rounds, got {len(sigma)}"
        return
    mechanism = make_mechanism(round_table(with_noise(recipe).aggregator, rounds - 1))
    if recipe.teachers.nearest and type(mechanism).rdp_ahead_one_count is Aggregator.rdp_ahead_one_count:
        yield f'aggregator: {mechanism!r} states no cost for partial votes, which teachers.model = "nearest" casts'
    fewest = min(recipe.queries.counts)
    if recipe.teachers.nearest and recipe.teachers.votes_per_record > fewest:
        yield f"teachers.votes_per_record: at most the {fewest} queries of a round, got {recipe.teachers.votes_per_record}"
    if recipe.teachers.nearest and recipe.student.model == "proportions":
        believed = make_student(recipe.student, 0).settings()["votes"]
        if believed != recipe.teachers.votes_per_record:
            yield (
                f"student.votes: {believed}, but teachers.votes_per_record is {recipe.teachers.votes_per_record}; the student "
                "must know in how many cells a record votes"
            )
    if rounds == 1 and type(mechanism).against is not Aggregator.against:
        yield (
            f"queries.rounds: {recipe.aggregator.name} compares the teachers with a student, which learns from a first round; "
            "there must be at least 2"
        )


def _not_sanitised(recipe: Recipe) -> Iterator[str]:
    """Why there can be no sanitised epsilon."""
    if recipe.aggregator.remote:
        yield "privacy.sanitise: a service publishes data-independent figures only; leave it out"
    elif recipe.queries.rounds > 1:
        yield "privacy.sanitise: of later rounds, chosen in view of answers, no data-dependent cost is a bound; leave it out"
    elif recipe.aggregator.parameters.get("sigma") == AUTO:
        yield f'privacy.sanitise: sigma = "{AUTO}" leaves nothing of the budget to pay for it; give sigma a number'
    elif recipe.teachers.nearest:
        yield "privacy.sanitise: the cost of partial votes does not depend on the votes, so there is nothing to sanitise"
    else:
        try:
            check_covered(make_mechanism(recipe.aggregator), Electorate(recipe.teachers.count or 0, 2))
        except ParameterError as error:
            yield f"privacy.sanitise: {error}"


def _check_teachers(table: TeachersTable) -> None:
    if table.nearest:
        if table.count is not None:
            raise ParameterError('count: with model = "nearest" every record votes; leave it out')
        if table.parameters:
            unknown = next(iter(table.parameters))
            raise ParameterError(f"{unknown}: unknown key{did_you_mean(unknown, TeachersTable.model_fields)}")
        return
    if table.votes_per_user is not None or table.votes_per_record != 1 or table.voters is not None:
        raise ParameterError('votes_per_record, votes_per_user and voters belong to model = "nearest"')
    make_family(table)
    if table.count is None:
        raise ParameterError("count: missing; how many teachers there are")


def _check_queries(table: QueriesTable) -> None:
    if table.strategy in NEED_STUDENT:
        raise ParameterError(
            f"strategy: {table.strategy} needs a student, and there is none before the first round; take medoids, and "
            f'later_strategy = "{table.strategy}" with rounds = 2'
        )
    for key, strategy in (("strategy", table.strategy), ("later_strategy", table.later_strategy)):
        if ":" in strategy:
            load_reference(strategy)
        elif strategy not in STRATEGIES:
            raise ParameterError(
                f"{key}: {strategy!r} is no strategy{did_you_mean(strategy, STRATEGIES)} Known: {', '.join(STRATEGIES)}"
            )


def _check_aggregator(table: AggregatorTable) -> None:
    if table.remote:
        url = table.parameters.get("url")
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
            raise ParameterError(f'url: with name = "service" it must be an address such as "https://host:8080", got {url!r}')
        if urlsplit(url).password is not None or urlsplit(url).username is not None:
            raise ParameterError(
                "url: a recipe is published with its run, so no password may stand in it; the token is $PATE_TOKEN"
            )
        return
    if table.parameters.get("sigma") == AUTO:
        if table.name not in _AUTOMATIC:
            raise ParameterError(f'sigma = "{AUTO}" is for {" and ".join(_AUTOMATIC)}; give a number')
        table = table.model_copy(update={"sigma": 1.0})
    sigma = table.parameters.get("sigma")
    if sigma == []:
        raise ParameterError("sigma: a list has one value for each round; this one is empty")
    for number in range(len(sigma) if isinstance(sigma, list) else 1):
        make_mechanism(round_table(table, number))


def _check_dpsgd(table: DpsgdTable) -> None:
    check_model_name(table.model)
    training_settings(table)


def _check_erm(table: ErmTable) -> None:
    check_erm_model(table.model)
    erm_settings(table)


def _check_privacy(table: PrivacyTable) -> None:
    Budget(table.epsilon, table.delta, slack=table.slack)
    if table.ledger is not None and urlsplit(table.ledger).password is not None:
        raise ParameterError(
            "ledger: a recipe is published with its run, so it must hold no password. Let PostgreSQL find it in ~/.pgpass or "
            "PGPASSWORD"
        )


_CHECKS: dict[type, Callable[[Any], object]] = {
    DataTable: make_source,
    FeaturesTable: make_features,
    TeachersTable: _check_teachers,
    QueriesTable: _check_queries,
    AggregatorTable: _check_aggregator,
    PrivacyTable: _check_privacy,
    DpsgdTable: _check_dpsgd,
    ErmTable: _check_erm,
    StudentTable: lambda table: make_student(table, 0),
}


@contextmanager
def _collected(problems: list[str], name: str) -> Iterator[None]:
    try:
        yield
    except MissingExtra:  # not the recipe's fault
        raise
    except (PateError, TypeError, ValueError) as error:
        text = " ".join(str(error).split()).rstrip(".")
        problems.append(f"{name}: {text}")
