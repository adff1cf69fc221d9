"""pate ledger show, verify and export; and the examples of docs/ledger.md."""

from __future__ import annotations

import csv
import doctest
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from ledger_worker import BUDGET, QUERY
from typer.testing import CliRunner

from pate.commands.ledger import app
from pate.errors import LedgerError
from pate.ledger import Ledger


@pytest.fixture
def filled(place: str, fingerprint: str) -> str:
    with Ledger.open(place, fingerprint, BUDGET, "user") as ledger:
        ledger.settle(ledger.reserve(10 * QUERY, {"mechanism": "gnmax"}), 4 * QUERY, {"answered": 4})
        ledger.reserve(QUERY, {"memo, with comma": 'and "quotes"'}, key="k")
    return place


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def the_one(document: dict[str, Any], fingerprint: str) -> dict[str, Any]:
    (found,) = [item for item in document["datasets"] if item["fingerprint"] == fingerprint]
    assert isinstance(found, dict)
    return found


def test_show(filled: str, fingerprint: str) -> None:
    table = run("show", filled, "--dataset", fingerprint)
    assert "1e-05" in table
    assert "user" in table
    summary = the_one(json.loads(run("show", filled, "--json")), fingerprint)
    with Ledger.open(filled, fingerprint) as ledger:
        assert summary == {
            "fingerprint": fingerprint,
            "unit": "user",
            "neighbours": "replace",
            "budget": {"epsilon": 3.0, "delta": 1e-5, "order": BUDGET.order, "cap": BUDGET.cap},
            "spent": {"rdp": ledger.verify().spent, "epsilon": ledger.spent().epsilon, "order": ledger.spent().order},
            "remaining": {"rdp": ledger.remaining().rdp, "fraction": ledger.remaining().fraction},
            "entries": 4,
            "pending": 1,
            "claim": "the budget: costs, or who asked, followed from earlier answers",
            "head": ledger.verify().head,
        }


def test_verify(filled: str, fingerprint: str) -> None:
    if "://" not in filled:  # the rows of other tests are in the PostgreSQL server, some of them damaged on purpose
        assert "is sound: 4 rows of 1 data set(s)" in run("verify", filled)
        report = json.loads(run("verify", filled, "--json"))
        assert report["ok"] is True
        assert the_one(report, fingerprint)["rows"] == 4


def test_verify_says_what_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    with Ledger.open(path, "data", BUDGET) as ledger:
        ledger.charge(QUERY, {})
    head = tmp_path / "ledger.db.head"
    head.unlink()
    result = CliRunner().invoke(app, ["verify", str(path), "--json"])
    assert isinstance(result.exception, LedgerError)
    report = json.loads(result.stdout)
    assert report["ok"] is False
    assert "--rebuild-head" in report["error"]
    assert "is sound" in run("verify", str(path), "--rebuild-head")
    assert head.exists()


def test_an_exported_chain_can_be_checked_without_this_package(filled: str, fingerprint: str) -> None:
    previous = "0" * 64
    exported = the_one(json.loads(run("export", filled, "--dataset", fingerprint)), fingerprint)
    for number, row in enumerate(exported["rows"], start=1):
        payload = json.dumps(row["payload"], sort_keys=True, separators=(",", ":"))
        content = json.dumps([previous, fingerprint, row["sequence"], row["kind"], payload], separators=(",", ":"))
        previous = hashlib.sha256(content.encode()).hexdigest()
        assert (row["sequence"], row["hash"]) == (number, previous)
    assert [row["kind"] for row in exported["rows"]] == ["open", "reserve", "settle", "reserve"]


def test_export_to_a_spreadsheet(filled: str, fingerprint: str, tmp_path: Path) -> None:
    out = tmp_path / "ledger.csv"
    assert run("export", filled, "--csv", "--dataset", fingerprint, "--out", str(out)) == ""
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [row["kind"] for row in rows] == ["open", "reserve", "settle", "reserve"]
    assert rows[2]["settles"] == "2"
    assert float(rows[2]["rdp"]) == pytest.approx(4 * QUERY.values[BUDGET.order_index], abs=1e-11)
    assert json.loads(rows[3]["memo"]) == {"memo, with comma": 'and "quotes"'}
    assert CliRunner().invoke(app, ["export", filled, "--csv", "--json"]).exit_code == 2
    with pytest.raises(LedgerError, match="another --out"):
        run("export", filled, "--csv", "--dataset", fingerprint, "--out", str(tmp_path / "no" / "where"))


def test_show_refuses_an_unknown_data_set_and_path(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    Ledger.open(path, "data", BUDGET).close()
    for arguments in (["show", str(path), "--dataset", "other"], ["show", str(tmp_path / "none.db")]):
        with pytest.raises(LedgerError, match="Check the"):
            run(*arguments)


def test_the_examples_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[2] / "docs" / "ledger.md"
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(page), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert failed == 0
    assert tried > 10
