"""``pate teachers``: from files with private records to a file of votes, and everything that can be wrong on the way."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_cases import one_line
from numpy.typing import NDArray

from pate.progress import tracked
from pate.teachers.run_directory import RunDirectory

for package in ("safetensors", "threadpoolctl"):
    pytest.importorskip(package, reason=f"{package} is not installed (extra 'train')")
pytest.importorskip("fsspec", reason="fsspec is not installed (extra 'storage')")

Pate = Callable[..., Any]
N_TEACHERS, N_CLASSES, N_QUERIES = 12, 3, 15

STATUS_FIELDS = {
    *("run", "model", "features", "n_teachers", "n_classes", "unit", "fingerprint", "trained", "empty", "failed", "pending"),
    *("running", "rate", "seconds_left", "held_out_accuracy", "seconds"),
}


class Files:
    """What a user has on disk: private records of three kinds, public inputs, a directory for runs."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(5)
        y = np.arange(360) % N_CLASSES
        x = (np.eye(8)[y] * 2 + rng.normal(size=(360, 8))).astype(np.float32)
        self.folder, self.x, self.y = folder, x, y
        self.npz = folder / "ward.npz"
        np.savez(self.npz, x=x, y=y, ids=np.arange(360))
        self.users = folder / "users.npz"
        np.savez(self.users, x=x, y=y, ids=np.arange(360), groups=np.arange(360) // 3)
        self.queries = folder / "queries.npy"
        np.save(self.queries, np.eye(8, dtype=np.float32)[np.arange(N_QUERIES) % N_CLASSES] * 2)
        self.public = folder / "public.npz"
        np.savez(self.public, x=rng.normal(size=(50, 8)).astype(np.float32))
        self.run = folder / "run"
        self.out = folder / "votes.npz"

    @property
    def train(self) -> tuple[Any, ...]:
        return ("teachers", "train", self.npz, *self.how)

    @property
    def how(self) -> tuple[Any, ...]:
        return ("--run", self.run, "--classes", N_CLASSES, "--salt", "ward", "--teachers", N_TEACHERS, "--serial")

    @property
    def vote(self) -> tuple[Any, ...]:
        return ("teachers", "vote", self.run, self.queries, "--out", self.out, "--serial")

    @property
    def nearest(self) -> tuple[Any, ...]:
        return ("teachers", "nearest", self.npz, self.queries, "--out", self.out, "--classes", N_CLASSES, "--serial")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def counts(path: Path) -> NDArray[Any]:
    with np.load(path) as archive:
        found: NDArray[Any] = archive["counts"]
    return found


# From files to votes -------------------------------------------------------------------------------------------------------


def test_train_vote_and_account(pate: Pate, files: Files) -> None:
    trained = pate(*files.train, "--json")
    assert trained.code == 0, trained.err
    assert set(trained.json) == STATUS_FIELDS
    assert (trained.json["trained"], trained.json["pending"], trained.json["failed"]) == (N_TEACHERS, 0, {})
    assert trained.json["held_out_accuracy"] > 0.5  # chance is a third, and the classes lie two deviations apart
    assert f"teachers: {N_TEACHERS} of {N_TEACHERS}" in trained.err  # lines, since this is no terminal
    voted = pate(*files.vote, "--json")
    assert voted.code == 0, voted.err
    told = {key: voted.json[key] for key in ("queries", "classes", "teachers", "participation", "unit")}
    assert told == {"queries": N_QUERIES, "classes": N_CLASSES, "teachers": N_TEACHERS, "participation": None, "unit": "record"}
    assert voted.json["fingerprint"] == trained.json["fingerprint"]
    assert (counts(files.out).sum(axis=1) == N_TEACHERS).all()
    assert stat.S_IMODE(files.out.stat().st_mode) == 0o600
    report = pate("account", files.out, "-a", "gnmax", "-s", "sigma=2", "--json").json
    assert (report["teachers"], report["queries"]) == (N_TEACHERS, N_QUERIES)
    assert "data_dependent_per_teacher" not in report["epsilon"]


def test_predictions_give_the_cost_per_teacher(pate: Pate, files: Files) -> None:
    assert pate(*files.train).code == 0
    assert pate(*files.vote).code == 0
    alone = counts(files.out)
    assert pate(*files.vote, "--predictions").code == 0
    assert np.array_equal(counts(files.out), alone)
    report = pate("account", files.out, "-a", "gnmax", "-s", "sigma=2", "--json").json
    assert report["epsilon"]["data_dependent_per_teacher"] <= report["epsilon"]["data_dependent"]


def test_tables_name_the_next_step(pate: Pate, files: Files) -> None:
    trained = pate(*files.train)
    assert "held-out records" in trained.out
    assert f"Next: pate teachers vote {files.run}" in trained.out
    voted = pate(*files.vote)
    assert f"pate account {files.out} -a gnmax -s sigma=2" in voted.out
    assert "Private" in voted.out


def test_directories_and_tables_give_the_same_votes_as_one_file(pate: Pate, files: Files) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra 'storage')")
    parquet = pytest.importorskip("pyarrow.parquet")
    assert pate(*files.train).code == 0
    assert pate(*files.vote).code == 0
    expected = counts(files.out)
    columns = {f"pixel{number}": files.x[:, number] for number in range(8)}
    table = arrow.table({"patient": np.arange(360), "finding": files.y, "room": np.full(360, 7), **columns})
    (files.folder / "parquet").mkdir()
    for part in range(3):
        parquet.write_table(table.slice(part * 120, 120), files.folder / "parquet" / f"{part}.parquet")
    named = ("--id", "patient", "--label", "finding", "--inputs", ",".join(columns))
    run, out = files.folder / "run2", files.folder / "votes2.npz"
    ran = pate("teachers", "train", files.folder / "parquet", *files.how, *named, "--run", run)
    assert ran.code == 0, ran.err
    assert "prove its parts disjoint" in ran.err
    assert not list(run.glob("parts/*"))  # the split copy of the private records is gone
    assert pate("teachers", "vote", run, files.queries, "--out", out, "--serial").code == 0
    assert np.array_equal(counts(out), expected)


def test_silos_are_teachers(pate: Pate, files: Files) -> None:
    for silo in range(4):
        place = files.folder / "silos" / f"hospital{silo}"
        place.mkdir(parents=True)
        mine = slice(silo * 90, silo * 90 + 90)
        np.savez(place / "data.npz", x=files.x[mine], y=files.y[mine], ids=np.arange(360)[mine])
    ran = pate(
        *("teachers", "train", files.folder / "silos", "--silos", "--run", files.run, "--classes", N_CLASSES),
        *("--salt", "ward", "--serial", "--json"),
    )
    assert ran.code == 0, ran.err
    assert ran.json["trained"] == 4


def test_users_vote_within_their_bound(pate: Pate, files: Files) -> None:
    command = list(files.nearest)
    assert (command[2], pate(*command, "--json").json["teachers"]) == (files.npz, 360)
    command[2] = files.users
    one_line(pate(*command, "--group-by", "groups"), "votes_per_user must be given")
    ran = pate(*command, "--group-by", "groups", "--votes-per-user", 2, "--json")
    assert (ran.json["teachers"], ran.json["participation"], ran.json["unit"]) == (120, 2, "user")
    assert counts(files.out).sum() <= 240
    assert stat.S_IMODE(files.out.stat().st_mode) == 0o600
    report = pate("account", files.out, "-a", "gnmax", "-s", "sigma=5", "--teachers", 120, "--participation", 2, "--json")
    assert report.code == 0, report.err
    assert sorted(path.name for path in files.folder.iterdir() if path.is_dir()) == []  # no copy of private records stays


def test_models_of_scikit_learn_and_their_parameters(pate: Pate, files: Files) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn is not installed (extra 'train')")
    pytest.importorskip("skops", reason="skops is not installed (extra 'train')")
    first = pate(*files.train, "-m", "sklearn.linear_model:LogisticRegression", "-s", "C=10", "--json")
    assert first.code == 0, first.err
    assert first.json["model"]["settings"]["parameters"] == {"C": 10}
    assert pate(*files.vote).code == 0
    expected = counts(files.out)
    spelled = ("-s", "estimator=sklearn.linear_model.LogisticRegression", "-s", 'parameters={"C": 10}')
    second = pate(*files.train, "--run", files.folder / "second", "-m", "sklearn", *spelled)
    assert second.code == 0, second.err
    out = files.folder / "second.npz"
    assert pate("teachers", "vote", files.folder / "second", files.queries, "--out", out, "--serial").code == 0
    assert np.array_equal(counts(out), expected)


def test_features_stand_before_teachers(pate: Pate, files: Files) -> None:
    pca = ("--features", "pca", "--features-set", "components=3")
    one_line(pate(*files.train, *pca), "give them with --public FILE")
    one_line(pate(*files.train, "--public", files.public), "name the features too")
    ran = pate(*files.train, *pca, "--public", files.public, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["features"] is not None
    assert pate(*files.vote).code == 0


def test_models_are_listed(pate: Pate) -> None:
    known = pate("teachers", "models", "--json").json
    assert {"logistic", "ridge", "mlp", "cnn", "forest", "boosting", "knn", "sklearn", "torch"} <= set(known)
    assert all(known.values())
    text = pate("teachers", "models").out
    assert "package.module:Class" in text
    assert known["logistic"][:40] in text


def test_the_commands_in_the_documents_run(pate: Pate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after the other, in a directory that holds the files they name."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed (extra 'train')")
    pytest.importorskip("skops", reason="skops is not installed (extra 'train')")
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
    commands = re.findall(r"^\$ pate (.+)$", page, flags=re.MULTILINE)
    assert len(commands) == 16
    x, y = datasets.load_digits(return_X_y=True)
    np.savez(tmp_path / "ward.npz", x=x[:1200] / 16, y=y[:1200], ids=np.arange(1200))
    np.save(tmp_path / "queries.npy", x[1200:1210] / 16)
    np.save(tmp_path / "public.npy", x[1200:] / 16)
    monkeypatch.chdir(tmp_path)
    for command in commands:
        ran = pate(*shlex.split(command))
        assert ran.code == 0, f"{command}: {ran.err}"


# Mistakes ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--workers", 2), "--serial means this process alone"),
        (("--silos",), "either --teachers"),
        (("-m", "logistc"), "did you mean 'logistic'?"),
        (("-m", "no_such_module:Class"), "No module named 'no_such_module'"),
        (("-m", "os:getcwd"), "a class with fit and predict"),
        (("-s", "epoch=3"), "did you mean 'epochs'?"),
        (("-s", "epochs=[3"), "begins as JSON but is none"),
        (("--features-set", "oops"), "--features-set must look like key=value"),
        (("--features", "hogg"), "did you mean 'hog'?"),
        (("--shape", "2,0"), "--shape must be whole numbers"),
        (("--shape", "3,3"), "does not fill"),
        (("--classes", 2), "labels must lie in 0..1 (--classes 2)"),
        (("--default-vote", 3), "default_vote"),
        (("--holdout", 1.5), "holdout"),
        (("--group-by", "patient"), "no array 'groups'"),
        (("--teachers", 361), "more than there are records"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_no_run(pate: Pate, files: Files, arguments: tuple[Any, ...], message: str) -> None:
    one_line(pate(*files.train, *arguments), message)
    assert not RunDirectory(files.run).exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("missing.npz", "no such file or directory"),
        ("queries.npy", "suffix must be one of"),
        ("public.npz", "no array 'y'"),
        ("users.npz", "it has groups"),
        ("broken.npz", "cannot be read as .npz"),
        ("nowhere://ward/x", "cannot be opened: Protocol not known: nowhere"),
    ],
)
def test_data_that_cannot_be_read(pate: Pate, files: Files, data: str, message: str) -> None:
    (files.folder / "broken.npz").write_bytes(b"PK\x03\x04 nothing")
    place = data if "://" in data else files.folder / data
    one_line(pate("teachers", "train", place, *files.how), message)


def test_one_cell_of_text_takes_no_input_from_the_teachers(pate: Pate, files: Files) -> None:
    """Else one record would change all teachers, and the number of inputs would tell of it."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed (extra 'storage')")
    rows = [f"{number},{number % 3},1.{number % 7},{number % 3}" for number in range(360)]
    table, shards = files.folder / "ward.csv", files.folder / "shards"
    shards.mkdir()
    for path in (table, shards / "part.csv"):
        path.write_text("\n".join(["id,pulse,pressure,label", *rows]) + "\n")
    trained = pate("teachers", "train", table, *files.how)
    assert trained.code == 0, trained.err
    rows[5] = "5,2,high,2"
    for number, path in enumerate((table, shards / "part.csv")):
        path.write_text("\n".join(["id,pulse,pressure,label", *rows]) + "\n")
        place = table if path == table else shards
        told = pate("teachers", "train", place, *files.how, "--run", files.folder / f"other{number}")
        one_line(told, "input 'pressure' must be a number in every record; 1 of 360 cells are none")
        assert "high" not in told.err
        assert "--inputs on the command line" in told.err
        out = files.folder / "nearest.npz"
        near = ("teachers", "nearest", place, files.queries, "--out", out, "--classes", 3, "--serial")
        one_line(pate(*near), "input 'pressure' must be a number in every record")
        assert not out.exists()


def test_a_directory_that_cannot_be_written(pate: Pate, files: Files) -> None:
    one_line(pate(*files.train, "--run", files.queries / "run"), "Not a directory")
    one_line(pate(*files.train, "--run", files.queries), "No teacher had begun")
    one_line(pate("teachers", "status", files.queries), "Not a directory")


def test_votes_need_a_run_a_place_and_fitting_queries(pate: Pate, files: Files) -> None:
    one_line(pate(*files.vote), "nothing was trained here")
    assert pate(*files.train).code == 0
    one_line(pate(*files.vote, "--out", files.folder / "no" / "votes.npz"), "there is no directory")
    one_line(pate(*files.vote, "--out", files.folder), "it is a directory")
    narrow = files.folder / "narrow.npy"
    np.save(narrow, np.zeros((4, 5), dtype=np.float32))
    one_line(pate("teachers", "vote", files.run, narrow, "--out", files.out, "--serial"), "queries of shape (5,)")
    one_line(pate("teachers", "nearest", files.npz, narrow, "--out", files.out, "--classes", 3, "--serial"), "got 8 and 5")
    words = files.folder / "words.csv"
    words.write_text("a,b\n1,2\n")
    one_line(pate("teachers", "vote", files.run, words, "--out", files.out, "--serial"), "never unpickled")
    one_line(pate("teachers", "vote", files.run, files.folder / "none.npy", "--out", files.out, "--serial"), "no such file")
    assert not files.out.exists()


def test_a_used_directory_is_neither_taken_nor_mixed(pate: Pate, files: Files) -> None:
    assert pate(*files.train).code == 0
    one_line(pate(*files.train), "Add --resume")
    one_line(pate(*files.train, "--resume", "--seed", 1), "seed: was 0, now 1")
    one_line(pate(*files.train, "--resume", "--salt", "other"), "salt was 'ward' and is 'other'")
    one_line(pate(*files.train, "--resume", "-m", "ridge"), "holds another run")
    assert pate(*files.train, "--resume").code == 0


def test_a_full_disk_is_told_with_what_is_kept(pate: Pate, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    save = RunDirectory.save_model

    def full(self: RunDirectory, teacher: int, suffix: str, write: Callable[[Path], None]) -> str:
        if teacher == 5:
            raise OSError(28, "No space left on device")
        return save(self, teacher, suffix, write)

    monkeypatch.setattr(RunDirectory, "save_model", full)
    one_line(pate(*files.train), "No space left on device. 5 of 12 teachers are finished and kept")


def test_failures_are_shown_to_the_owner_who_asks(pate: Pate, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skops", reason="skops is not installed (extra 'train')")
    _module(
        files,
        monkeypatch,
        "fragile",
        "if len(y) % 4 == 0: raise ValueError(f'cannot learn from {len(y)} [records]')",
    )
    one_line(pate(*files.train, "-m", "fragile:Model", "--max-failures", 0), "pate teachers status --errors")
    ran = pate(*files.train, "-m", "fragile:Model", "--max-failures", 0.9, "--resume", "--json")
    assert ran.code == 0, ran.err
    assert set(ran.json["failed"].values()) == {"ValueError"}
    assert ran.json["trained"] + len(ran.json["failed"]) == N_TEACHERS
    plain, asked = pate("teachers", "status", files.run).out, pate("teachers", "status", files.run, "--errors").out
    assert "(ValueError)" in plain
    assert "cannot learn" not in plain
    assert "[records]" in asked
    assert set(pate("teachers", "status", files.run, "--errors", "--json").json["errors"]) == set(ran.json["failed"])
    assert pate(*files.vote).code == 0
    assert (counts(files.out).sum(axis=1) == N_TEACHERS).all()  # the ensemble never shrinks


# Stopped runs --------------------------------------------------------------------------------------------------------------


def _module(files: Files, monkeypatch: pytest.MonkeyPatch, name: str, in_fit: str) -> None:
    """A user's module with the class Model: nearest mean, after ``in_fit``."""
    (files.folder / f"{name}.py").write_text(
        f"""
import os
import numpy as np

class Model:
    def fit(self, x, y):
        {in_fit}
        self.means = np.array([x[y == label].mean(axis=0) for label in range(y.max() + 1)])
        return self

    def predict(self, x):
        return ((x[:, None] - self.means) ** 2).sum(axis=-1).argmin(axis=1)
"""
    )
    monkeypatch.syspath_prepend(str(files.folder))


def test_a_stopped_run_goes_on_and_votes_as_if_nothing_had_been(
    pate: Pate, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("skops", reason="skops is not installed (extra 'train')")
    trigger = files.folder / "trigger"
    _module(
        files,
        monkeypatch,
        "stoppable",
        f"""if os.path.exists({str(trigger)!r}):
            left = int(open({str(trigger)!r}).read())
            if left == 0: raise KeyboardInterrupt
            open({str(trigger)!r}, 'w').write(str(left - 1))""",
    )
    model = ("-m", "stoppable:Model")
    whole = files.folder / "whole"
    assert pate(*files.train, *model, "--run", whole).code == 0
    assert pate("teachers", "vote", whole, files.queries, "--out", files.folder / "whole.npz", "--serial").code == 0
    trigger.write_text("5")
    one_line(pate(*files.train, *model), "Stopped. 5 of 12 teachers are finished and kept", code=130)
    state = pate("teachers", "status", files.run, "--json").json
    assert (state["trained"], state["pending"], state["running"]) == (5, N_TEACHERS - 5, False)
    assert "train with --resume" in pate("teachers", "status", files.run).out
    one_line(pate(*files.vote), "7 of 12 teachers are not finished")
    trigger.unlink()
    before = {path.name: path.stat().st_mtime_ns for path in (files.run / "models").iterdir()}
    assert len(before) == 5
    again = pate(*files.train, *model, "--resume")
    assert again.code == 0, again.err
    assert "teachers: 5 of 12" in again.err
    assert {name: (files.run / "models" / name).stat().st_mtime_ns for name in before} == before  # never trained twice
    assert pate(*files.vote).code == 0
    assert np.array_equal(counts(files.out), counts(files.folder / "whole.npz"))


def test_stopping_before_anything_began(pate: Pate, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pate.experiments.teacher_jobs.read_shard", stop)
    one_line(pate(*files.train), "Stopped. No teacher had begun.", code=130)
    one_line(pate(*files.nearest), "Stopped. No votes were written.", code=130)


def test_status_while_a_run_goes_on(pate: Pate, files: Files) -> None:
    assert pate(*files.train).code == 0
    run = RunDirectory(files.run)
    (files.run / "records" / "000003.json").unlink()
    with run.locked():
        with tracked("teachers", N_TEACHERS, done=2, show="none", file=run.progress_file) as progress:
            progress.advance(9)
        state = pate("teachers", "status", files.run, "--json").json
        assert state["running"]
        assert state["pending"] == 1
        assert state["rate"] > 0
        assert state["seconds_left"] == pytest.approx(1 / state["rate"])
        assert "1, training now," in pate("teachers", "status", files.run).out
        one_line(pate(*files.train, "--resume"), "another process is training in it")
    assert pate("teachers", "status", files.run, "--json").json["rate"] is None


def test_status_of_damaged_directories(pate: Pate, files: Files) -> None:
    one_line(pate("teachers", "status", files.run), "nothing was trained here")
    (files.run / "parts").mkdir(parents=True)
    one_line(pate("teachers", "status", files.run), "being split")
    assert pate(*files.train).code == 0
    (files.run / "records" / "000001.json").write_text('{"teacher": 1')  # torn
    models = sorted((files.run / "models").iterdir())
    models[2].unlink()
    models[4].write_bytes(models[4].read_bytes()[:-1])
    state = pate("teachers", "status", files.run, "--json").json
    assert (state["trained"], state["pending"]) == (N_TEACHERS - 3, 3)
    (files.run / "progress.jsonl").write_text("\x00 no JSON")
    with RunDirectory(files.run).locked():
        assert pate("teachers", "status", files.run, "--json").json["rate"] is None
    assert pate(*files.train, "--resume", "--json").json["trained"] == N_TEACHERS
    facts = json.loads((files.run / "run.json").read_text())
    for damaged, message in (
        ("{", "run.json is damaged"),
        ("[]", "must hold an object"),
        ("{}", "it lacks teachers, n_teachers"),
        (json.dumps({**facts, "teachers": {"family": "logistic"}}), "it lacks teachers"),
    ):
        (files.run / "run.json").write_text(damaged)
        one_line(pate("teachers", "status", files.run), message)


# On Ray --------------------------------------------------------------------------------------------------------------------


def test_ray_writes_the_same_votes_as_serial(pate: Pate, files: Files) -> None:
    pytest.importorskip("ray", reason="ray is not installed (extra 'ray')")
    from pate.execution import OnRay

    assert pate(*files.train).code == 0
    assert pate(*files.vote, "--predictions").code == 0
    with np.load(files.out) as archive:
        expected = dict(archive)
    run, out = files.folder / "on_ray", files.folder / "on_ray.npz"
    how = ("--run", run, "--classes", N_CLASSES, "--salt", "ward", "--teachers", N_TEACHERS)
    with OnRay(workers=2) as connection:  # both commands use it, so that Ray starts once
        connection.start()
        ran = pate("teachers", "train", files.npz, *how, "--workers", 2)
        assert ran.code == 0, ran.err
        ran = pate("teachers", "vote", run, files.queries, "--out", out, "--predictions", "--workers", 2)
        assert ran.code == 0, ran.err
    with np.load(out) as archive:
        assert {name: array.dtype for name, array in archive.items()} == {k: v.dtype for k, v in expected.items()}
        assert all(np.array_equal(archive[name], array) for name, array in expected.items())
    assert os.stat(out).st_mode & 0o077 == 0
