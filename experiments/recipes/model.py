"""What stands in a recipe. A table names a part of the run; keys beside those listed here are that part's own parameters."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pate.release import Mode

SERVICE = "service"
"""As ``aggregator.name``: the answers come from a service at ``aggregator.url``, and nothing private is needed here."""

AUTO = "auto"
"""As ``aggregator.sigma``: the least noise with which all queries fit in the budget."""

AUTOMATIC = ("gnmax", "noisy-histogram")
"""The aggregators for which it can be found."""

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, lt=1)]
Seed = Annotated[int, Field(ge=0)]


class Closed(BaseModel):
    """A table with no keys but these."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Part(BaseModel):
    """A table whose other keys are the parameters of the part that it names."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class DataTable(Part):
    """source: a name of `pate data list`, "files" for your own, or "package.module:Class".

    private_share: of the private records (or users) so many are kept, by a hash of their ids; for curves over their number, in
    simulations only.
    """

    source: str
    private_share: Annotated[float, Field(gt=0, lt=1)] | None = None


class FeaturesTable(Part):
    """Public features by name: hog, pca, contrastive, … or "package.module:Class"; fitted on public records."""

    name: str


class TeachersTable(Part):
    """model: a teacher family, or "nearest": single records vote on their nearest queries, nothing is trained.

    count: teachers; not for "nearest". voters: for "nearest", declared: how many records (or users) there are at most; public.
    salt: of the keyed hash that places a record; public, and part of the run.
    features: false: the records themselves; true: those of [features]; a table: features of its own.
    """

    model: str
    count: Count | None = None
    salt: str = "pate"
    features: bool | FeaturesTable = True
    holdout: Share = 0.0
    default_vote: Annotated[int, Field(ge=0)] = 0
    retries: Annotated[int, Field(ge=0)] = 1
    max_failures: Share = 0.05
    allow_empty: bool = False
    votes_per_record: Count = 1
    votes_per_user: Count | None = None
    voters: Count | None = None

    @property
    def nearest(self) -> bool:
        return self.model == "nearest"


class QueriesTable(Closed):
    """count: public records to ask about. features: as for the teachers: by what records are compared.

    rounds: how often is asked; each later round asks ``later_count`` records (``count`` unless given), chosen by
    ``later_strategy`` from the public records and a student of the rounds before. ask_again: also records that were asked
    before: other noise on the same votes.
    """

    count: Count
    strategy: str = "medoids"
    features: bool | FeaturesTable = True
    rounds: Count = 1
    later_count: Count | None = None
    later_strategy: str = "uncertainty"
    ask_again: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """How many records each round asks about."""
        return (self.count, *(self.later_count or self.count for _ in range(self.rounds - 1)))


class AggregatorTable(Part):
    """name: gnmax, lnmax, confident-gnmax, noisy-histogram, or "package.module:Class"; its parameters beside it.

    Or "service", with the ``url`` of one: then the tables of teachers and privacy, and other parameters, stand idle.
    """

    name: str

    @property
    def remote(self) -> bool:
        return self.name == SERVICE


class PrivacyTable(Closed):
    """epsilon, delta: the budget of all that is ever asked of these data. ledger: its place in release mode, a file or URL.
    slack: the share of delta set aside for aggregators whose cost may fail to hold, such as stable-max.
    sanitise: also pay for an epsilon that depends on the votes and may be published (docs/sanitised-epsilon.md).
    """

    epsilon: Annotated[float, Field(gt=0)]
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5
    slack: Annotated[float, Field(ge=0, lt=1)] = 0.0
    ledger: str | None = None
    sanitise: bool = False


class StudentTable(Part):
    """model: a name of `pate student models`, or "package.module:Class". preset: settings known to work."""

    model: str
    preset: str | None = None


class EvaluationTable(Closed):
    """upper_bounds: also what could be had without privacy; looks at private data without noise, and is stamped so."""

    upper_bounds: bool = False


class DpsgdTable(Part):
    """The baseline: model: a name of ``pate.experiments.baselines.dpsgd``, or "package.module:factory"; how it is trained
    beside it. features: as for the teachers.
    """

    model: str = "logistic"
    features: bool | FeaturesTable = True


class ErmTable(Part):
    """Private empirical risk minimisation, a baseline: model: "logistic" or "huber-svm"; how it is learned beside it.
    features: as for the teachers.
    """

    model: str = "logistic"
    features: bool | FeaturesTable = True


class RunRecipe(Closed):
    """What PATE and its baselines have in common: the same data, the same budget, the same test.

    mode: "simulation" (seeded, only for public benchmark data) or "release"; chosen by the data unless given.
    seed: of everything that is drawn but the noise of a release, which cannot be seeded.
    """

    title: str = ""
    description: str = ""
    mode: Mode | None = None
    seed: Seed = 0
    data: DataTable
    features: FeaturesTable | None = None
    privacy: PrivacyTable
    evaluation: EvaluationTable = EvaluationTable()

    @property
    def run_name(self) -> str:
        """What a run of it is called."""
        return self.title or self.data.source

    def to_dict(self) -> dict[str, Any]:
        """Plain values, without keys that are not set: what TOML and JSON can hold."""
        found: dict[str, Any] = _without_none(self.model_dump(mode="json"))
        return found

    def _chosen(self, own: bool | FeaturesTable) -> FeaturesTable | None:
        if isinstance(own, FeaturesTable):
            return own
        return self.features if own else None


class Recipe(RunRecipe):
    """One run of PATE, from data to report."""

    teachers: TeachersTable
    queries: QueriesTable
    aggregator: AggregatorTable
    student: StudentTable

    def features_for(self, table: Literal["teachers", "queries"]) -> FeaturesTable | None:
        """The features that stand before the teachers, or in which queries are chosen."""
        return self._chosen(self.teachers.features if table == "teachers" else self.queries.features)


class DpsgdRecipe(RunRecipe):
    """One run of DP-SGD on the same data, from data to report."""

    dpsgd: DpsgdTable

    @property
    def run_name(self) -> str:
        return f"{super().run_name}-dpsgd"

    @property
    def features_before_training(self) -> FeaturesTable | None:
        return self._chosen(self.dpsgd.features)


class ErmRecipe(RunRecipe):
    """One run of private empirical risk minimisation on the same data, from data to report."""

    erm: ErmTable

    @property
    def run_name(self) -> str:
        return f"{super().run_name}-erm"

    @property
    def features_before_training(self) -> FeaturesTable | None:
        return self._chosen(self.erm.features)


_OF_PATE = {"teachers", "queries", "aggregator", "student"}
NOT_FOR = {Recipe: {"dpsgd", "erm"}, DpsgdRecipe: {*_OF_PATE, "erm"}, ErmRecipe: {*_OF_PATE, "dpsgd"}}
"""One file may hold the tables of both kinds of runs; each reads its own."""


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(each) for key, each in value.items() if each is not None}
    return [_without_none(each) for each in value] if isinstance(value, list) else value
