"""What a run found, as it stands in result.json: one format for PATE runs and baselines, and the part that may be published."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from pate.errors import DataError
from pate.experiments.array_files import write_text
from pate.progress import duration
from pate.release import SIMULATION_STAMP, Mode

FILE = "result.json"
NOT_PRIVATE = "not private: computed from the private data without noise, for the owner's eyes only"

Verified = Literal["built-in", "checked", "unverified"]


class _Facts(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DataFacts(_Facts):
    """benchmark: the records are public anyway, so nothing of them is secret. Counts are None where they must not be told."""

    name: str
    protocol: str
    benchmark: bool
    fingerprint: str | None
    unit: str
    class_names: list[str]
    private_records: int | None
    public_records: int
    test_records: int | None


class Curve(_Facts):
    """Epsilon over the number of queries asked, or of steps taken; ``dependent`` is private."""

    over: Literal["queries asked", "steps"] = "queries asked"
    queries: list[int]
    independent: list[float]
    dependent: list[float] | None


class TrainingFacts(_Facts):
    """What the noise of a trained baseline consists of.

    steps: charged, those that a crash took away among them; lost: how many those are.
    epsilon_pld: None where dp_accounting is missing, or where RDP says that it would promise nothing.
    charged: the neighbouring relation of the ledger, by which it was charged.
    """

    steps: int
    lost: int
    lot_size: int
    rate: float
    noise_multiplier: float
    clip: float
    epsilon_rdp: float
    epsilon_pld: float | None
    accountant: str
    charged: str


class ErmFacts(_Facts):
    """What the noise of a private linear model consists of.

    method: "output", "objective", "gaussian". records, data_norm: declared; columns: with that of the intercept.
    candidates: of the regularisation, where it was chosen privately, with ``choice_epsilon``. noise: scales and the like, by
    name. epsilon_direct: of the mechanism by itself; at any delta where ``pure``. charged: the ledger's neighbouring relation.
    """

    method: str
    regularisation: float
    records: int
    columns: int
    data_norm: float
    candidates: list[float] | None
    choice_epsilon: float | None
    noise: dict[str, float]
    epsilon_direct: float
    epsilon_rdp: float
    pure: bool
    charged: str


class RoundFacts(_Facts):
    """One of several rounds. epsilon: of it alone, data-independent. reinforced: queries on which the student was confirmed,
    where it was compared with the teachers."""

    strategy: str
    asked: int
    answered: int
    reinforced: int | None
    mechanism: dict[str, Any]
    epsilon: float


class SanitisedFacts(_Facts):
    """A sanitised epsilon as it was drawn, for the answers and itself: ``pate.experiments.sanitising.Sanitised``. Public."""

    epsilon: float
    bound: float
    estimate: float
    low: float
    high: float
    independent: float
    answers_independent: float
    order: float
    delta: float
    failure: float
    release_rdp: float
    method: str
    settings: dict[str, float]
    drawn: dict[str, float]
    queries: int
    mode: Mode
    rule: str
    stamp: str


class PrivacyFacts(_Facts):
    """What the release cost.

    data_independent: publishable. data_dependent: exact and itself private. sanitised: publishable; None where none was
    drawn; sanitising: what is behind it.
    published: the bounds of the papers by key, ``theorem6`` and the like; private_published are those that depend on votes.
    spent: of the whole ledger after this run, data-independent (no claim where later questions hang on earlier answers), and
    private: it tells when another ledger began, as somebody came or went. budget_epsilon: what the ledger allows in all.
    """

    delta: float
    data_independent: float
    data_dependent: float | None
    sanitised: float | None
    order: float
    order_at_grid_edge: bool
    budget_epsilon: float
    spent: float | None
    ledger: str
    mechanism: dict[str, Any]
    n_teachers: int | None
    participation: int | None
    asked: int | None
    answered: int | None
    neighbours: str
    conversion: str
    published: dict[str, float]
    private_published: dict[str, float] | None
    curve: Curve | None
    training: TrainingFacts | None = None
    rounds: list[RoundFacts] | None = None
    erm: ErmFacts | None = None
    sanitising: SanitisedFacts | None = None

    @property
    def promised(self) -> float:
        """Of all that the public copy tells: of the answers, and of the sanitised epsilon where one was drawn."""
        return self.data_independent if self.sanitising is None else self.sanitising.epsilon


class Evaluation(_Facts):
    """On the test split, opened once. confusion[i][j]: records of class i that the student took for j."""

    accuracy: float
    standard_error: float
    balanced_accuracy: float
    auc: float | None
    majority: float
    tested: int
    confusion: list[list[int]]
    openings: list[str]


class LabelNoise(_Facts):
    """right: share of answers that are the true label (benchmarks only). plurality: share that are the teachers' own winner,
    private."""

    answered: int
    right: float | None
    plurality: float | None


class Consensus(_Facts):
    """How many queries had how large a share of the votes for the winner: counts[i] between edges[i] and edges[i + 1]."""

    edges: list[float]
    counts: list[int]


class UpperBounds(_Facts):
    """Accuracy on the test split without any privacy."""

    all_data: float | None
    all_data_model: str | None
    plurality: float | None
    stamp: str = NOT_PRIVATE


class StageFact(_Facts):
    """cached: found finished. private: its time may depend on private data."""

    name: str
    seconds: float
    cached: bool
    private: bool
    note: str = ""


class Result(_Facts):
    """One run. ``public()`` is what may leave the house.

    >>> Result.model_fields["kind"].annotation
    <class 'str'>
    """

    format: Literal["pate-result"] = "pate-result"
    version: Literal[1] = 1
    kind: str  # "pate", or the name of a baseline
    title: str
    created: str
    run_id: str
    mode: Mode
    stamp: str
    verified: Verified
    copy_for: Literal["owner", "public"] = "owner"
    data: DataFacts
    student: str
    teachers: str
    privacy: PrivacyFacts
    evaluation: Evaluation | None
    label_noise: LabelNoise | None
    consensus: Consensus | None
    upper_bounds: UpperBounds | None
    stages: list[StageFact]
    warnings: list[str]
    private_warnings: list[str] = []
    environment: dict[str, str]
    seed: int
    test_is_public: bool

    @property
    def simulated(self) -> bool:
        return self.mode == "simulation"

    @property
    def seconds(self) -> float:
        return sum(stage.seconds for stage in self.stages)

    def public(self) -> Result:
        """Without everything that depends on votes or private records other than through the mechanism."""
        told: dict[str, Any] = {"copy_for": "public", "consensus": None, "upper_bounds": None, "stages": []}
        told["created"] = self.created[:10]  # the time of day, beside other runs', tells how long training took
        privacy = self.privacy.model_copy(update={"data_dependent": None, "private_published": None})
        if privacy.curve is not None:
            curve = privacy.curve.model_copy(update={"dependent": None})
            privacy = privacy.model_copy(update={"curve": curve})
        noise = None if self.label_noise is None else self.label_noise.model_copy(update={"plurality": None})
        told |= {"privacy": privacy, "label_noise": noise, "private_warnings": []}
        if not self.data.benchmark:
            # A fingerprint is a hash of ids, and the number of records changes with every record.
            told["data"] = self.data.model_copy(update={"fingerprint": None, "private_records": None, "test_records": None})
            told["environment"] = {}
            told["privacy"] = privacy.model_copy(update={"spent": None})
            if not self.test_is_public:
                told["evaluation"] = None
        return self.model_copy(update=told)

    def write(self, path: Path) -> None:
        write_text(path, self.model_dump_json(indent=1) + "\n", 0o666 if self.copy_for == "public" else 0o600)

    @classmethod
    def read(cls, path: Path) -> Result:
        """From a file, or from the run directory that holds it."""
        file = path / FILE if path.is_dir() else path
        try:
            return cls.model_validate_json(file.read_bytes())
        except FileNotFoundError:
            raise DataError(f"{path}: there is no {FILE}. Is it the directory of a finished run?") from None
        except OSError as error:
            raise DataError(f"{file}: it cannot be read ({error.strerror or error}).") from error
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "the file"
            raise DataError(f"{file}: not a result of this version of pate ({where}: {first['msg']}). Run it again.") from None

    def rows(self) -> dict[str, str]:
        """The result in a few lines, for a table."""
        privacy, test = self.privacy, self.evaluation
        rows = {"noise": self.stamp}
        if test is not None:
            rows["student's accuracy"] = f"{test.accuracy:.2%} ± {test.standard_error:.2%} on {test.tested} test records"
            if test.auc is not None:
                rows["student's AUC"] = f"{test.auc:.4f}, balanced accuracy {test.balanced_accuracy:.2%}"
        published = "what a release would publish" if self.simulated else "may be published"
        alone = published if privacy.sanitising is None else "of the answers, where the sanitised one stays private"
        rows["epsilon, data-independent"] = f"{privacy.data_independent:.4f} at delta {privacy.delta:g}: {alone}"
        if privacy.data_dependent is not None and privacy.participation is None:  # of partial votes no smaller one is known
            rows["epsilon, data-dependent"] = f"{privacy.data_dependent:.4f}: exact, private, for the owner only"
        if (told := privacy.sanitising) is not None:
            spread = f"one standard deviation {told.low:.4f} to {told.high:.4f}, before its margin"
            rows["epsilon, sanitised"] = f"{told.epsilon:.4f}, its own release included ({spread}): {published}"
        if (training := privacy.training) is not None:
            pld = "not computed" if training.epsilon_pld is None else f"{training.epsilon_pld:.4f}"
            rows["epsilon by accountant"] = f"RDP {training.epsilon_rdp:.4f}, PLD {pld}"
            rows["training"] = (
                f"{training.steps} steps at sampling rate {training.rate:.4g}, noise multiplier {training.noise_multiplier:g}"
            )
        elif (erm := privacy.erm) is not None:
            kind = "pure" if erm.pure else f"at delta {privacy.delta:g}"
            rows["epsilon by accountant"] = f"RDP {erm.epsilon_rdp:.4f}, by itself {erm.epsilon_direct:.4f}, {kind}"
            rows["model"] = f"{erm.method} perturbation, regularisation {erm.regularisation:.3g}, {erm.columns} columns"
        else:
            rows["answers"] = f"{privacy.answered} of {privacy.asked} queries, {privacy.n_teachers} voters"
        if privacy.rounds is not None:
            rows["rounds"] = "; ".join(_of_round(number, each) for number, each in enumerate(privacy.rounds, 1))
        if self.label_noise is not None and self.label_noise.right is not None:
            rows["answers"] += f", {self.label_noise.right:.1%} of them right"
        spent = "" if privacy.spent is None else f"{privacy.spent:.4f} spent of "
        rows["ledger"] = f"epsilon {spent}{privacy.budget_epsilon:g} ({privacy.ledger})"
        if self.stages:
            rows["time"] = duration(self.seconds)
        return rows

    def _repr_html_(self) -> str:
        from html import escape

        head = f"<caption><b>{escape(self.title)}</b></caption>"
        body = "".join(f"<tr><th>{escape(k)}</th><td>{escape(v)}</td></tr>" for k, v in self.rows().items())
        return f"<table>{head}{body}</table>"

    def __str__(self) -> str:
        accuracy = "not tested" if self.evaluation is None else f"{self.evaluation.accuracy:.2%}"
        stamp = f"; {SIMULATION_STAMP}" if self.simulated else ""
        return f"Result({self.title!r}: {accuracy} at epsilon {self.privacy.promised:.4g}{stamp})"

    __repr__ = __str__


def _of_round(number: int, facts: RoundFacts) -> str:
    more = "" if facts.reinforced is None else f", {facts.reinforced} reinforced"
    return f"{number}: {facts.answered} of {facts.asked} by {facts.strategy}{more}, epsilon {facts.epsilon:.4f}"
