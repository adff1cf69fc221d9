"""Training and voting in one process: records, defaults, resuming, refusals."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from small_teachers import MeanTeachers

from pate.arrays import IntArray
from pate.errors import ParameterError, PartitionError, TeacherError
from pate.execution import Serial
from pate.features import Chain, Features, Scale, Standardise
from pate.public import PublicData
from pate.teachers import Ensemble, Partition, PrivateData
from pate.teachers.chunks import held_out
from pate.teachers.run_directory import RunDirectory, TeacherRecord

N_TEACHERS = 10


def private_data(seed: int = 0, n: int = 240) -> PrivateData:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    x = rng.normal(size=(n, 5)) + 2.0 * y[:, None]
    return PrivateData(x, y, ids=[f"patient-{i}" for i in range(n)], name="ward")


QUERIES = np.random.default_rng(1).normal(size=(30, 5)) + 2.0 * np.arange(30)[:, None] % 6


def split(data: PrivateData | None = None) -> Partition:
    return Partition.by_hash(data or private_data(), N_TEACHERS, salt="2026")


def train(run: Path, family: MeanTeachers | str = "", **options: Any) -> Ensemble:
    options = {"n_classes": 3, "show": "none"} | options
    return Ensemble.train(options.pop("parts", None) or split(), family or MeanTeachers(), run, **options)


def test_votes_are_one_for_each_teacher_and_query(tmp_path: Path) -> None:
    ensemble = train(tmp_path)
    votes, predictions = ensemble.vote(QUERIES), ensemble.predict(QUERIES)
    assert votes.counts.shape == (30, 3)
    assert (votes.counts.sum(axis=1) == N_TEACHERS).all()
    assert predictions.dtype == np.int8
    expected = np.stack([(predictions == label).sum(axis=0) for label in range(3)], axis=1)
    np.testing.assert_array_equal(votes.counts, expected)
    assert len(np.unique(predictions)) == 3


def test_a_teacher_learns_from_its_own_records_only(tmp_path: Path) -> None:
    data = private_data()
    parts = split(data)
    victim = int(parts.teacher_of[0])
    x = data.x.copy()
    x[0] += 50.0  # one record changes
    before = train(tmp_path / "a", parts=parts, holdout=0.0).predict(QUERIES)
    after = train(tmp_path / "b", parts=split(data.with_inputs(x)), holdout=0.0).predict(QUERIES)
    others = np.arange(N_TEACHERS) != victim
    np.testing.assert_array_equal(before[others], after[others])
    assert (before[victim] != after[victim]).any()  # its class is now far away


def test_every_teacher_leaves_a_record(tmp_path: Path) -> None:
    parts = split()
    ensemble = train(tmp_path, parts=parts, seed=7)
    assert [record.teacher for record in ensemble.records] == list(range(N_TEACHERS))
    assert [record.records for record in ensemble.records] == parts.sizes.tolist()
    for record in ensemble.records:
        assert record.outcome == "trained"
        assert record.data_hash == parts.content_hash(record.teacher)
        assert record.held_out == 0 or 0.0 <= (record.accuracy or 0.0) <= 1.0
    assert len({record.seed for record in ensemble.records}) == N_TEACHERS
    assert sum(record.held_out for record in ensemble.records) > 0
    manifest = json.loads((tmp_path / "partition.json").read_text())
    assert manifest["private"] is True
    assert ensemble.fingerprint == parts.fingerprint
    assert ensemble.unit == "record"


def test_the_run_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    train(tmp_path / "run")
    for folder in (tmp_path / "run", tmp_path / "run" / "models"):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_an_ensemble_is_opened_again(tmp_path: Path) -> None:
    parts = split()
    trained = train(tmp_path, "logistic", parts=parts)
    opened = Ensemble.open(tmp_path)
    np.testing.assert_array_equal(trained.predict(QUERIES), opened.predict(QUERIES))
    assert repr(opened) == repr(trained)
    assert "10 teachers" in repr(opened)


def test_a_failed_teacher_votes_the_default_and_is_reported(tmp_path: Path) -> None:
    ensemble = train(tmp_path, MeanTeachers(raising=[3]), max_failures=0.1, default_vote=2)
    assert ensemble.failures == {3: "ValueError"}
    assert ensemble.n_teachers == N_TEACHERS
    assert (ensemble.predict(QUERIES)[3] == 2).all()
    assert (ensemble.vote(QUERIES).counts.sum(axis=1) == N_TEACHERS).all()
    assert "4711" not in repr(ensemble) + str(ensemble.failures)
    assert "4711" in ensemble.records[3].error  # for the owner, in the run directory


def test_no_worker_sends_back_what_an_error_quotes(tmp_path: Path) -> None:
    sent = []

    class Listening(Serial):
        def run(self, work: Any, tasks: Any, shared: Any) -> Any:
            for outcome in super().run(work, tasks, shared):
                sent.append(repr(outcome))
                yield outcome

    train(tmp_path, MeanTeachers(raising=[3]), max_failures=0.1, executor=Listening())
    assert any("ValueError" in each for each in sent)
    assert "4711" not in "".join(sent)


def test_the_others_are_as_if_nobody_had_failed(tmp_path: Path) -> None:
    whole = train(tmp_path / "a").predict(QUERIES)
    with_failure = train(tmp_path / "b", MeanTeachers(raising=[3]), max_failures=0.1).predict(QUERIES)
    others = np.arange(N_TEACHERS) != 3
    np.testing.assert_array_equal(whole[others], with_failure[others])


def test_a_teacher_that_cannot_vote_votes_the_default(tmp_path: Path) -> None:
    ensemble = train(tmp_path, MeanTeachers(silent=[5]), max_failures=0.1, default_vote=1, holdout=0.0)
    assert ensemble.records[5].outcome == "trained"
    assert (ensemble.predict(QUERIES)[5] == 1).all()
    np.testing.assert_array_equal(
        ensemble.vote(QUERIES).counts,
        np.stack([(ensemble.predict(QUERIES) == label).sum(axis=0) for label in range(3)], axis=1),
    )


def test_too_many_failures_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match=r"2 of 10 teachers failed, more than max_failures=0\.1"):
        train(tmp_path / "a", MeanTeachers(raising=[3, 4]), max_failures=0.1)
    with pytest.raises(TeacherError, match="2 of 10 teachers failed"):
        train(tmp_path / "b", MeanTeachers(raising=[3], silent=[4]), max_failures=0.1, holdout=0.0).vote(QUERIES)


def test_a_mended_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    log, markers = tmp_path / "log", tmp_path / "markers"
    log.mkdir()
    markers.mkdir()
    family = MeanTeachers(trained_log=str(log), raising=[6], once=str(markers))
    with pytest.raises(TeacherError):
        train(tmp_path / "run", family, max_failures=0.0)
    done = {int(path.name.partition("-")[0]) for path in log.iterdir()}
    assert done
    run = RunDirectory(tmp_path / "run")
    kept = {teacher: (run.path / "records" / f"{teacher:06d}.json").read_bytes() for teacher in done}
    (markers / "mended").touch()
    ensemble = train(tmp_path / "run", family, max_failures=0.0, resume=True)
    trainings = [int(path.name.partition("-")[0]) for path in log.iterdir()]
    assert sorted(trainings) == list(range(N_TEACHERS))  # nobody twice
    for teacher, before in kept.items():
        assert (run.path / "records" / f"{teacher:06d}.json").read_bytes() == before
    np.testing.assert_array_equal(ensemble.predict(QUERIES), train(tmp_path / "fresh").predict(QUERIES))


class Overflowing(MeanTeachers):
    """Raises where a query and its part's means together are more than it bears: which teachers can vote is private."""

    def predict(self, model: NDArray[Any], x: NDArray[Any], n_classes: int) -> IntArray:
        if (x + model.max() > 1e6).any():
            raise FloatingPointError("overflow")
        return super().predict(model, x, n_classes)


def test_a_query_that_teachers_cannot_vote_on_changes_no_other(tmp_path: Path) -> None:
    ensemble = train(tmp_path, Overflowing(), default_vote=1, holdout=0.0)
    usual = ensemble.vote(QUERIES).counts
    np.testing.assert_array_equal(ensemble.vote_apart(QUERIES).counts, usual)
    largest = [ensemble._settings.family.load(ensemble._settings.run.model_path(t, ".npy")).max() for t in range(N_TEACHERS)]
    for_some = 1e6 - np.median(largest)
    asked = np.insert(QUERIES, [0, 7, 7, 30], np.array([1e9, for_some, 1e9, 1e9])[:, None], axis=0)
    with pytest.raises(TeacherError, match="None of 10 teachers could vote"):
        ensemble.vote(asked)
    counts = ensemble.vote_apart(asked).counts
    np.testing.assert_array_equal(counts[asked[:, 0] < 100], usual)
    np.testing.assert_array_equal(counts[asked[:, 0] == 1e9], np.tile([0, N_TEACHERS, 0], (3, 1)))
    # As if each had been asked alone.
    np.testing.assert_array_equal(counts, np.concatenate([ensemble.vote_apart(query[None]).counts for query in asked]))
    assert counts[asked[:, 0] == for_some].tolist() == [[0, 5, 5]]  # whoever can says 2


def test_some_teachers_that_cannot_vote_on_a_query_are_no_error_there(tmp_path: Path) -> None:
    ensemble = train(tmp_path, MeanTeachers(silent=[0, 1, 4, 9]), default_vote=1, max_failures=0.1, holdout=0.0)
    with pytest.raises(TeacherError, match="4 of 10 teachers failed"):
        ensemble.vote(QUERIES)
    (tmp_path / "whole").mkdir()
    others = np.delete(train(tmp_path / "whole", holdout=0.0).predict(QUERIES), [0, 1, 4, 9], axis=0)
    expected = np.stack([(others == label).sum(axis=0) for label in range(3)], axis=1)
    expected[:, 1] += 4
    np.testing.assert_array_equal(ensemble.vote_apart(QUERIES).counts, expected)


def test_a_damaged_model_is_trained_again_and_never_a_default_vote(tmp_path: Path) -> None:
    ensemble = train(tmp_path)
    before = ensemble.predict(QUERIES)
    RunDirectory(tmp_path).model_path(4, ".npy").write_bytes(b"torn")
    with pytest.raises(TeacherError, match=r"Teacher 4: its model .* is missing or damaged"):
        ensemble.vote(QUERIES)
    with pytest.raises(TeacherError, match="1 of 10 teachers are not finished"):
        Ensemble.open(tmp_path)
    np.testing.assert_array_equal(train(tmp_path, resume=True).predict(QUERIES), before)


def test_a_directory_is_not_used_twice_by_accident(tmp_path: Path) -> None:
    train(tmp_path)
    with pytest.raises(TeacherError, match=r"holds a run already.*--resume"):
        train(tmp_path)
    with pytest.raises(TeacherError, match=r"another run .seed: was 0, now 1"):
        train(tmp_path, seed=1, resume=True)
    with pytest.raises(PartitionError, match="10 teachers have other records"):
        train(tmp_path, parts=split(private_data(seed=5)), resume=True)
    with RunDirectory(tmp_path).locked(), pytest.raises(TeacherError, match="another process is training"):
        train(tmp_path, resume=True)


def test_nothing_trained_here_is_said(tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match=r"has no run.json"):
        Ensemble.open(tmp_path)


def test_an_empty_part_votes_the_default(tmp_path: Path) -> None:
    data = private_data(n=4)
    parts = Partition.by_hash(data, 4, salt="leaves one empty", allow_empty=True)
    for salt in range(100):
        parts = Partition.by_hash(data, 4, salt=str(salt), allow_empty=True)
        if (parts.sizes == 0).any():
            break
    empty = int(np.flatnonzero(parts.sizes == 0)[0])
    ensemble = train(tmp_path, parts=parts, default_vote=1)
    assert ensemble.records[empty].outcome == "empty"
    assert ensemble.failures == {}
    assert (ensemble.predict(QUERIES)[empty] == 1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_classes": 1}, "n_classes"),
        ({"default_vote": 3}, r"0\.\.2"),
        ({"holdout": 1.0}, "holdout"),
        ({"max_failures": -0.1}, "max_failures"),
        ({"retries": -1}, "retries"),
        ({"features": object()}, "declared or fitted on PublicData"),
    ],
)
def test_settings_are_checked_before_anything_is_written(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=message):
        train(tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_labels_beyond_the_declared_classes_fail_their_teachers(tmp_path: Path) -> None:
    with pytest.raises(TeacherError, match="max_failures"):
        train(tmp_path, n_classes=2)


class Unreadable(Partition):
    """Its storage fails while teacher 2 is read."""

    def loader(self, teacher: int) -> Any:
        return BrokenLoader(self.fault) if teacher == 2 else super().loader(teacher)


@dataclass(frozen=True)
class BrokenLoader:
    fault: Exception

    def load(self, shared: Any) -> Any:
        raise self.fault


@pytest.mark.parametrize("fault", [OSError("connection reset"), PartitionError("the shard changed")])
def test_storage_that_fails_stops_the_run_and_makes_no_default_vote(fault: Exception, tmp_path: Path) -> None:
    parts = Unreadable.by_hash(private_data(), N_TEACHERS, salt="2026")
    parts.fault = fault  # type: ignore[attr-defined]
    with pytest.raises(type(fault), match=str(fault)):
        train(tmp_path, parts=parts, max_failures=0.5)
    np.testing.assert_array_equal(
        train(tmp_path, resume=True).predict(QUERIES), train(tmp_path / "undisturbed").predict(QUERIES)
    )


def test_public_features_stand_before_every_teacher(tmp_path: Path) -> None:
    features = Standardise().fit(PublicData(QUERIES, name="brochure"))
    ensemble = train(tmp_path, features=features)
    np.testing.assert_array_equal(ensemble.predict(QUERIES), Ensemble.open(tmp_path).predict(PublicData(QUERIES)))


def test_a_run_goes_on_with_the_features_it_began_with(tmp_path: Path) -> None:
    train(tmp_path, features=Standardise().fit(PublicData(QUERIES)))
    before = (tmp_path / "features").read_bytes()
    with pytest.raises(TeacherError, match=r"another run .features"):
        train(tmp_path, features=Standardise().fit(PublicData(QUERIES + 1.0)), resume=True)
    assert (tmp_path / "features").read_bytes() == before


class Doubled(Features):
    """An extractor of one's own."""

    def _transform_block(self, x: NDArray[np.float32]) -> NDArray[Any]:
        return 2 * x


def test_features_of_ones_own_stand_before_queries_too(tmp_path: Path) -> None:
    plain = train(tmp_path / "plain").predict(QUERIES.astype(np.float32))
    ensemble = train(tmp_path / "run", features=Chain(Doubled(), Scale(0.0, 2.0)), holdout=0.1)
    assert ensemble.predict(QUERIES).shape == plain.shape
    assert len(np.unique(ensemble.predict(QUERIES))) > 1


def test_features_fitted_on_the_private_rows_are_refused(tmp_path: Path) -> None:
    parts = split()
    lie = Standardise().fit(PublicData(private_data().x, name="not public at all"))
    with pytest.raises(PartitionError, match="'not public at all', which holds 100% of the private records"):
        train(tmp_path, parts=parts, features=lie)


def test_who_is_held_out_is_decided_by_each_key_alone() -> None:
    # n = 100,000 keys, share 0.1: the count is within 6 standard errors but for one run in 5e8.
    keys = np.random.default_rng(0).integers(0, 2**64, size=100_000, dtype=np.uint64)
    held = held_out(keys, 0.1)
    assert abs(held.sum() - 10_000) < 6 * 95
    np.testing.assert_array_equal(held_out(keys[::3], 0.1), held[::3])
    assert not held_out(keys, 0.0).any()
    assert not held_out(keys[held][:3], 0.1).any()  # nothing would be left to learn from
    same_teacher = keys[keys % np.uint64(250) == 7]
    assert abs(held_out(same_teacher, 0.5).mean() - 0.5) < 6 * 0.5 / np.sqrt(len(same_teacher))


def test_progress_can_be_read_from_a_file(tmp_path: Path) -> None:
    train(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert lines[0]["done"] == 0
    assert lines[-1]["done"] == lines[-1]["total"] == N_TEACHERS


def test_a_record_shows_no_quotation() -> None:
    record = TeacherRecord(1, "failed", 0, "", error="ValueError: secret")
    assert record.error_kind == "ValueError"


def test_serial_shows_itself() -> None:
    assert repr(Serial()) == "Serial()"
