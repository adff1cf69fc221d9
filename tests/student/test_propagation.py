"""Spreading and fine-tuning in rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from student_cases import digits, released, rings

from pate.errors import PateError, StudentError
from pate.features import Contrastive
from pate.student.base import Student
from pate.student.neural.propagation import Propagation
from pate.student.neural.supervised import Supervised
from pate.student.queries import select_queries

SMALL: dict[str, Any] = {"width": 8, "rate": 5e-3, "seed": 1}


def test_on_digits_it_beats_supervised() -> None:
    """30 medoids of 800 digits, 2 answers wrong; the same network and as many steps. Seven seeds gave 4 to 8 points."""
    x, y = digits()
    asked = select_queries(x[:800], 30)
    labels = y[asked].copy()
    labels[10:12] = (labels[10:12] + 4) % 10
    release = released(labels, 10)
    taught: dict[str, Any] = {"strength": 0.3, "width": 16, "rate": 5e-3, "seed": 1}
    student = Propagation(features="identity", rounds=2, steps=50, public_batch=64, robust=0.0, **taught).fit(
        x[:800], release, asked
    )
    alone = Supervised(steps=100, batch=64, **taught).fit(x[:800], release, asked)
    test_x, test_y = x[1400:], y[1400:]
    assert student.score(test_x, test_y) > alone.score(test_x, test_y) + 0.01
    stages = [row["stage"] for row in student.record["history"]]
    assert stages[0] == "round 1 of 2"
    assert stages[-1] == "round 2 of 2"
    assert {"loss", "agreement"} <= student.record["history"][-1].keys()


def test_the_same_seed_is_the_same_student_also_from_a_file(tmp_path: Path) -> None:
    x, y = digits()
    release = released(y[:20], 10)
    student, again, other = (
        Propagation(features="identity", rounds=2, steps=4, width=4, seed=seed).fit(x[:60], release, np.arange(20))
        for seed in (1, 1, 2)
    )
    found = student.predict_proba(x[60:90])
    np.testing.assert_array_equal(again.predict_proba(x[60:90]), found)
    assert np.abs(other.predict_proba(x[60:90]) - found).max() > 1e-3
    # A record's prediction does not depend on the records beside it, up to rounding.
    np.testing.assert_allclose(student.predict_proba(x[65:66]), found[5:6], atol=1e-5)
    student.save(tmp_path / "student.zip")
    np.testing.assert_array_equal(Student.load(tmp_path / "student.zip").predict_proba(x[60:90]), found)


def test_the_network_starts_as_the_self_supervised_one(tmp_path: Path) -> None:
    x, y = digits()
    pictures = np.kron(x[:60], np.ones((2, 2), dtype=np.float32))  # 16 x 16: the least that Contrastive takes is 12 x 12
    tiny = {"name": "contrastive", "settings": {"features": 8, "epochs": 1, "batch": 30, "channels": [2, 2, 4]}}
    asked = np.arange(20)
    student = Propagation(features=tiny, rounds=1, steps=1, rate=1e-9).fit(pictures, released(y[asked], 10), asked)
    contrastive = Contrastive(**tiny["settings"])  # type: ignore[arg-type]
    from pate.public import PublicData

    expected = contrastive.fit(PublicData(pictures)).network().state_dict()
    for name in ("0.weight", "3.weight", "7.weight"):
        np.testing.assert_allclose(student._net.body.state_dict()[name], expected[name], atol=1e-6)
    student.save(tmp_path / "student.zip")
    np.testing.assert_array_equal(
        Student.load(tmp_path / "student.zip").predict_proba(pictures), student.predict_proba(pictures)
    )


def test_a_table() -> None:
    """Rings, 12 answers of 400: a linear teacher could not, the graph can."""
    x, y = rings(600)
    asked = np.arange(12)
    student = Propagation(rounds=1, steps=120, strength=0.0, neighbours=6, features="identity", **SMALL)
    assert student.fit(x[:400], released(y[asked], 2), asked).score(x[400:], y[400:]) > 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"start": "feature"}, "start must be"),
        ({"mix": 1.5}, "mix must be"),
        ({"alpha": 1.0}, "alpha must be"),
        ({"views": 99}, "views must be at most 9"),
        ({"ema": 1.0}, "ema must be"),
        ({"features": {"name": "pca", "settings": {"components": {1}}}}, "JSON values"),
    ],
)
def test_wrong_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PateError, match=message):
        Propagation(**settings)


def test_pictures_it_has_no_features_for() -> None:
    x, y = digits()
    with pytest.raises(StudentError, match=r"no features of its own for pictures of shape \(1, 8, 8\)"):
        Propagation(steps=1).fit(x[:50], released(y[:20], 10), np.arange(20))
    with pytest.raises(StudentError, match="start='features' needs features='contrastive'"):
        Propagation(steps=1, features="identity", start="features").fit(x[:50], released(y[:20], 10), np.arange(20))
