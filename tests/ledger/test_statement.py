"""pate ledger key, sign and check: a statement that nobody can alter, and that shows up a ledger put back."""

from __future__ import annotations

import base64
import json
import shutil
import stat
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from ledger_worker import BUDGET, QUERY
from typer.testing import CliRunner

from pate.cli import app
from pate.errors import LedgerError
from pate.ledger import Ledger
from pate.ledger import ledger as ledgers


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["ledger", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    """A folder with a ledger, a pair of keys, and a statement."""
    with Ledger.open(tmp_path / "ledger.db", "ward", BUDGET, "user") as ledger:
        ledger.charge(3 * QUERY, {"mechanism": "gnmax"})
    run("key", tmp_path / "owner.key")
    run("sign", tmp_path / "ledger.db", "--key", tmp_path / "owner.key", "--out", tmp_path / "statement.json")
    return tmp_path


def check(folder: Path, *more: object, key: str = "owner.key.pub") -> str:
    return run("check", folder / "statement.json", "--key", folder / key, *more)


def change(folder: Path, edit: str, into: str) -> None:
    path = folder / "statement.json"
    text = path.read_text()
    assert edit in text
    path.write_text(text.replace(edit, into, 1))


def test_a_statement_says_what_show_says(signed: Path) -> None:
    told = check(signed, "--ledger", signed / "ledger.db")
    assert "ward" in told
    assert "has every row" in told
    shown = json.loads(run("show", signed / "ledger.db", "--json"))
    (stated,) = json.loads(check(signed, "--json"))["datasets"]
    (own,) = shown["datasets"]
    assert own.pop("fingerprint") == stated.pop("dataset") == "ward"
    assert len(stated.pop("opened")) == 64
    assert stated == own
    assert stat.S_IMODE((signed / "owner.key").stat().st_mode) == 0o600


ONE, TWO = "ward-0123456789abcdef", "ward-fedcba9876543210"


def test_a_statement_does_not_tell_who_is_in_the_data(signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fingerprints are hashes of ids, so neither they nor a hash that could be tried out with them may stand in it."""

    class Noon(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime(2026, 1, 1, 12, tzinfo=UTC)

    monkeypatch.setattr(ledgers, "datetime", Noon)
    hashes = set()
    for place in ("a.db", "b.db"):
        with Ledger.open(signed / place, ONE, BUDGET) as ledger:
            hashes.add(ledger.entries()[0].hash)
    assert len(hashes) == 2, "the same data, budget and time: what differs is a secret"
    run("sign", signed / "a.db", "--key", signed / "owner.key", "--out", signed / "statement.json")
    assert "0123456789abcdef" not in (signed / "statement.json").read_text()
    assert "ward: epsilon" in check(signed, "--ledger", signed / "a.db")
    with pytest.raises(LedgerError, match="is not in it"):
        check(signed, "--ledger", signed / "b.db")


def test_a_statement_says_which_figure_is_the_claim(signed: Path) -> None:
    assert "the claim is what is spent, if all of it was fixed in advance" in check(signed)
    with Ledger.open(signed / "ledger.db", "ward") as ledger:
        ledger.settle(ledger.reserve(2 * QUERY, {}), QUERY, {})  # less than the worst case: it followed from answers
    run("sign", signed / "ledger.db", "--key", signed / "owner.key", "--out", signed / "statement.json")
    assert "the claim is the budget" in check(signed)


def test_a_statement_does_not_tell_that_somebody_came_or_went(signed: Path) -> None:
    for fingerprint in (ONE, TWO):
        with warnings.catch_warnings(), Ledger.open(signed / "two.db", fingerprint, BUDGET):
            pass
    with pytest.raises(LedgerError, match="several data sets named 'ward'"):
        run("sign", signed / "two.db", "--key", signed / "owner.key", "--out", signed / "statement.json")
    run("sign", signed / "two.db", "--key", signed / "owner.key", "--out", signed / "statement.json", "--dataset", TWO)
    assert "ward" in check(signed, "--ledger", signed / "two.db")


def test_hashes_without_a_secret_are_not_stated(signed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ledger, "_begin", lambda self, header: self._append(lambda _: ("open", header.payload())))
    with Ledger.open(signed / "old.db", "ward", BUDGET):
        pass
    with pytest.raises(LedgerError, match="begun by an earlier version"):
        run("sign", signed / "old.db", "--key", signed / "owner.key", "--out", signed / "statement.json")


def test_the_signature_is_plain_ed25519_over_canonical_json(signed: Path) -> None:
    """By the words of the documentation alone, without our code."""
    document = json.loads((signed / "statement.json").read_text())
    content = json.dumps(document["statement"], sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()
    key = serialization.load_pem_public_key((signed / "owner.key.pub").read_bytes())
    assert isinstance(key, Ed25519PublicKey)
    key.verify(base64.b64decode(document["signature"]), content)


@pytest.mark.parametrize(("edit", "into"), [('"entries": 2', '"entries": 1'), ('"unit": "user"', '"unit": "record"')])
def test_a_changed_statement_is_refused(signed: Path, edit: str, into: str) -> None:
    change(signed, edit, into)
    with pytest.raises(LedgerError, match="or was changed since"):
        check(signed)


def test_another_key_is_refused(signed: Path) -> None:
    run("key", signed / "other.key")
    with pytest.raises(LedgerError, match="not signed with the key"):
        check(signed, key="other.key.pub")


def test_a_ledger_that_grew_is_fine_and_one_put_back_is_not(signed: Path) -> None:
    shutil.copytree(signed, before := signed / "before", ignore=shutil.ignore_patterns("before"))
    with Ledger.open(signed / "ledger.db", "ward") as ledger:
        ledger.charge(QUERY, {"mechanism": "gnmax"})
    check(signed, "--ledger", signed / "ledger.db")  # rows came since
    run("sign", signed / "ledger.db", "--key", signed / "owner.key", "--out", signed / "statement.json")
    # Database and head file put back together: the ledger itself cannot notice.
    with Ledger.open(before / "ledger.db", "ward") as ledger:
        ledger.verify()
        with pytest.raises(LedgerError, match="row 3 is missing"):
            check(signed, "--ledger", before / "ledger.db")
        ledger.charge(2 * QUERY, {"mechanism": "gnmax"})
    with pytest.raises(LedgerError, match="row 3 is another one"):
        check(signed, "--ledger", before / "ledger.db")


def test_a_key_is_never_overwritten_and_never_shared(signed: Path) -> None:
    with pytest.raises(LedgerError, match="no key is ever overwritten"):
        run("key", signed / "owner.key")
    (signed / "owner.key").chmod(0o640)
    with pytest.raises(LedgerError, match="chmod 600"):
        run("sign", signed / "ledger.db", "--key", signed / "owner.key", "--out", signed / "more.json")
    assert not (signed / "more.json").exists()


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"statement": {"format": "other"}, "signature": ""}', "nonsense"])
def test_what_is_no_statement_is_refused(signed: Path, content: str) -> None:
    (signed / "statement.json").write_text(content)
    with pytest.raises(LedgerError, match="Ask for it again"):
        check(signed)


def test_what_is_no_key_is_refused(signed: Path) -> None:
    for name in ("statement.json", "owner.key"):  # no key; the private one
        with pytest.raises(LedgerError, match="must be a public Ed25519 key"):
            check(signed, key=name)
    with pytest.raises(LedgerError, match="cannot be read"):
        check(signed, key="none")
    (signed / "owner.key.pub").chmod(0o600)
    with pytest.raises(LedgerError, match="must be a private Ed25519 key"):
        run("sign", signed / "ledger.db", "--key", signed / "owner.key.pub", "--out", signed / "more.json")
