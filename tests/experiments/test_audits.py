"""Audits of whole runs and of DP-SGD: planted leaks are caught, honest runs are not accused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from leaky_pipelines import (
    HalfSigma,
    OnePartitionForAll,
    PeekingStudent,
    PrivateScaling,
    SeededNoise,
    SharedPartition,
)
from pipeline_cases import tiny
from scipy.stats import binom

from pate.errors import ParameterError
from pate.experiments.audits.pipeline import Pipeline, Polled
from pate.experiments.audits.running import audit_pipeline, audit_run
from pate.experiments.audits.worlds import KINDS, make_worlds
from pate.experiments.datasets import Split
from pate.experiments.pipeline.launch import load_material
from pate.experiments.recipes.reading import read_recipe
from pate.noise import Noise, SimulatedNoise
from pate.release import Release
from pate.teachers import Partition, PrivateData
from pate.testing.audit_report import AuditReport, LowerBound

for package in ("sklearn", "threadpoolctl"):
    pytest.importorskip(package, reason=f"{package} is not installed (extra 'train')")

RECIPE = tiny(teachers={"model": "ridge", "count": 20}, queries={"count": 100}, aggregator={"name": "gnmax", "sigma": 10.0})
"""20 teachers, 100 queries: epsilon 5.5, of which two votes that tie on every query spend 4.9."""


ONE = ("mislabelled",)


@pytest.fixture(scope="module")
def split() -> Split:
    return load_material(read_recipe(RECIPE), None, None).split


def made(kind: type[Pipeline], split: Split, **changes: Any) -> Pipeline:
    return kind(read_recipe({**RECIPE, **changes}), split)


def exact(report: AuditReport) -> LowerBound:
    return next(each for each in report.lower_bounds if each.method == "exact")


def sampled(report: AuditReport) -> LowerBound:
    return next(each for each in report.lower_bounds if each.method == "black box")


def broken_rules(report: AuditReport) -> set[str]:
    return {rule.name.partition(":")[0] for rule in report.rules if not rule.passed}


def test_an_honest_run_is_not_accused(split: Split) -> None:
    """Confidence 0.99; the rules have no chance in them but 1e-8. No noise is used twice."""
    seeds: list[int] = []

    class Watched(Pipeline):
        def answer(self, polled: Polled, noise: Noise) -> Release:
            assert isinstance(noise, SimulatedNoise)
            seeds.append(noise.seed)
            return super().answer(polled, noise)

    report = audit_pipeline(made(Watched, split), runs=20, students=True, canaries=ONE)
    assert report.passed, report
    assert 0.8 * exact(report).claim < exact(report).lower < exact(report).claim
    assert sampled(report).runs == 40
    assert "alone with its teacher" in sampled(report).canary
    assert [rule.name for rule in report.rules if rule.name.startswith("student")] == ["student: answers alone"]
    assert len(seeds) == len(set(seeds)) == 41  # and one for the rule about students


def test_a_part_for_two_teachers_is_caught(split: Split) -> None:
    report = audit_pipeline(made(SharedPartition, split), runs=20, students=False, canaries=ONE)
    assert "one change" in broken_rules(report)
    assert exact(report).refuted
    assert exact(report).lower > exact(report).claim


def test_one_part_for_all_teachers_is_caught_three_times(split: Split) -> None:
    """By the rule, by the exact bound, and by 60 runs a world at confidence 0.99."""
    report = audit_pipeline(made(OnePartitionForAll, split), runs=60, students=False)
    assert "one change" in broken_rules(report)
    assert exact(report).refuted
    assert sampled(report).refuted


def test_private_scaling_is_caught(split: Split) -> None:
    report = audit_pipeline(made(PrivateScaling, split), runs=20, students=False)
    (rule,) = (each for each in report.failures if each.name.startswith("one change"))
    assert rule.name == "one change: an outlier record, real labels"
    assert "learnt from all of the private data" in rule.detail


def test_private_scaling_shows_in_the_answers(split: Split) -> None:
    """Of little noise: the claim is epsilon 80, and one outlier costs more."""
    quiet = made(PrivateScaling, split, aggregator={"name": "gnmax", "sigma": 2.5}, teachers={"model": "logistic", "count": 20})
    report = audit_pipeline(quiet, runs=20, students=False, natural=True, canaries=("outlier",))
    assert exact(report).refuted, report
    assert not any(each.private for each in report.lower_bounds), "the records are public"


def test_lines_on_private_records_are_private() -> None:
    recipe = read_recipe({**RECIPE, "data": tiny("Ward")["data"]})
    report = audit_pipeline(Pipeline(recipe, load_material(recipe, None, None).split), runs=20, students=False)
    assert report.lower_bounds
    assert all(each.private for each in report.lower_bounds)


def test_repeated_noise_is_caught(split: Split) -> None:
    report = audit_pipeline(made(SeededNoise, split), runs=60, students=False, canaries=ONE)
    assert sampled(report).refuted
    assert not exact(report).refuted  # which knows of the stated noise only


def test_half_the_noise_is_caught(split: Split) -> None:
    """600 runs a world at confidence 0.99."""
    report = audit_pipeline(made(HalfSigma, split), runs=600, students=False, canaries=ONE)
    assert sampled(report).refuted
    assert sampled(report).share > 1


def test_a_student_that_peeks_is_caught(split: Split) -> None:
    """By the rule, and by 40 runs a world at confidence 0.99: epsilon 1.1 is claimed."""
    quiet = made(PeekingStudent, split, aggregator={"name": "gnmax", "sigma": 40.0})
    report = audit_pipeline(quiet, runs=40, students=True, canaries=ONE)
    assert broken_rules(report) == {"student"}
    assert sampled(report).refuted
    assert sampled(report).event.startswith(("the student", "all that is published"))


def test_a_refusal_that_depends_on_votes_is_published_too(split: Split) -> None:
    class Refusing(Pipeline):
        def answer(self, polled: Polled, noise: Noise) -> Release:
            if polled.votes.counts[0].argmax() == 1:
                raise ParameterError("not these")
            return super().answer(polled, noise)

    quiet = made(Refusing, split, aggregator={"name": "gnmax", "sigma": 40.0})
    report = audit_pipeline(quiet, runs=60, students=False, canaries=ONE)
    assert sampled(report).refuted
    assert "all that is published" in sampled(report).event


def test_teachers_that_do_not_repeat_themselves_are_trained_in_every_run(split: Split) -> None:
    polls = 0

    class Restless(Pipeline):
        def poll(self, private: PrivateData) -> Polled:
            nonlocal polls
            polls += 1
            polled = super().poll(private)
            assert polled.predictions is not None
            predictions = polled.predictions.copy()
            predictions[polls % 4] = polls % 3
            return replace(polled, predictions=predictions)

    few = made(Restless, split, teachers={"model": "ridge", "count": 4})
    report = audit_pipeline(few, runs=20, students=False, canaries=ONE)
    assert polls > 40
    assert not broken_rules(report)
    assert "every run trained its teachers anew" in " ".join(report.notes)


@pytest.mark.parametrize("natural", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_worlds_differ_in_the_canary_alone(split: Split, kind: Any, natural: bool) -> None:
    pipeline = made(Pipeline, split)
    worlds = make_worlds(pipeline, split.private, kind, natural=natural)
    inside, outside = worlds.inside, worlds.outside
    assert len(inside) == len(outside) + 1
    assert inside.record_ids[:-1] == outside.record_ids
    np.testing.assert_array_equal(inside.x[:-1], outside.x)
    np.testing.assert_array_equal(inside.y[:-1], outside.y)
    home = Partition.by_hash(inside, 20, salt="pate", allow_empty=True).teacher_of[-1]
    alone = not np.isin(home, Partition.by_hash(outside, 20, salt="pate", allow_empty=True).teacher_of)
    assert alone is not natural
    if not natural:
        counts = pipeline.poll(outside).votes.counts
        assert (counts[:, :2] == 10).all()


def test_a_user_is_a_canary_with_many_records() -> None:
    recipe = read_recipe(tiny("GroupedWard", teachers={"model": "ridge", "count": 20}))
    grouped = load_material(recipe, None, None).split
    worlds = make_worlds(Pipeline(recipe, grouped), grouped.private, "mislabelled")
    assert len(worlds.inside) - len(worlds.outside) == 8
    assert len(worlds.inside.unit_ids) - len(worlds.outside.unit_ids) == 1


@pytest.mark.parametrize("source", ["PublicWard", "GroupedWard"])
def test_records_that_vote_by_themselves(source: str) -> None:
    """The canary is replaced: how many may vote is published, and is the same in both worlds."""
    users = {"votes_per_user": 2} if source == "GroupedWard" else {}
    tables = tiny(source, aggregator={"name": "gnmax", "sigma": 4.0})
    tables["teachers"] = {"model": "nearest", "features": False, **users}
    report = audit_run(read_recipe(tables), runs=40, students=False)
    assert report.passed, report
    assert exact(report).lower > 0
    assert "in the other" in exact(report).canary


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"canaries": ["elephant"]}, "A canary is one of mislabelled, outlier; got 'elephant'"),
        ({"canaries": []}, "got none"),
        ({"runs": 3}, "runs must be"),
        ({"confidence": 2.0}, "confidence must lie"),
    ],
)
def test_mistakes(split: Split, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        audit_pipeline(made(Pipeline, split), **changes)


def test_a_noisy_histogram_is_read_along_the_votes_that_differ() -> None:
    """One moved vote of noise 0.7: 60 runs a world at confidence 0.99 show a part of what is spent."""
    tables = tiny(aggregator={"name": "noisy-histogram", "sigma": 0.7})
    tables["teachers"] = {"model": "nearest", "features": False}
    report = audit_run(read_recipe(tables), runs=60, students=False, canaries=ONE)
    assert report.passed, report
    assert 0 < sampled(report).lower < sampled(report).claim
    assert sampled(report).event.startswith("noisy counts, along the votes that differ")


def test_a_service_cannot_be_audited_from_here() -> None:
    remote = tiny(aggregator={"name": "service", "url": "https://there:8080"})
    del remote["aggregator"]["sigma"]
    with pytest.raises(ParameterError, match="Audit the recipe of whoever keeps the data"):
        audit_run(read_recipe(remote))


@pytest.mark.slow
def test_many_honest_runs_raise_few_false_alarms(split: Split) -> None:
    """40 audits of 100 runs a world at confidence 0.9: more than 14 alarms have probability below 1e-4."""
    honest = made(Pipeline, split)
    settings: dict[str, Any] = {"runs": 100, "students": False, "confidence": 0.9, "canaries": ONE}
    reports = [audit_pipeline(honest, seed=seed, **settings) for seed in range(40)]
    assert not any(broken_rules(report) for report in reports)
    assert binom.sf(14, 40, 0.1) < 1e-4
    assert sum(sampled(report).refuted for report in reports) <= 14
