"""Tokens on disk and in memory, the token buckets, and ``pate token``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pate.aggregators.service.limits import RateLimiter
from pate.aggregators.service.token_file import TokenFile
from pate.aggregators.service.tokens import Client, Tokens, add_client, new_token, remove_client, renew_client, token_hash
from pate.errors import ParameterError


def test_tokens_are_long_random_and_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    made = [add_client(path, f"client {number}", "analyst") for number in range(5)]
    assert len(set(made)) == 5
    assert all(re.fullmatch(r"pate_[\w-]{43}", token) for token in made)  # 32 bytes in base64
    assert not any(token in path.read_text() or token[5:] in path.read_text() for token in made)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["tokens.json"]


def test_a_token_is_found_as_its_client(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    ann, bob = add_client(path, "ann", "owner", rate=0.5), add_client(path, "bob", "analyst", quota=7)
    tokens = Tokens.read(path)
    assert tokens.find(ann) == Client("ann", "owner", token_hash(ann), None, 0.5)
    assert tokens.find(bob) == Client("bob", "analyst", token_hash(bob), 7, None)
    assert tokens.quotas == {"bob": 7}
    for wrong in ("", ann[:-1], ann + "x", token_hash(ann), "pate_é", "\udcff"):
        assert tokens.find(wrong) is None
    assert ann not in repr(tokens)


def test_every_entry_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [new_token() for _ in range(4)]
    tokens = Tokens([Client(str(number), "analyst", token_hash(each)) for number, each in enumerate(given)])
    seen = []
    monkeypatch.setattr(
        "pate.aggregators.service.tokens.hmac.compare_digest",
        lambda a, b: seen.append((a, b)) or a == b,  # type: ignore[func-returns-value]
    )
    for token in (given[0], given[3], "wrong"):
        seen.clear()
        tokens.find(token)
        assert len(seen) == 4


def test_a_token_is_renewed_and_removed(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    old = add_client(path, "ann", "analyst", quota=3)
    with pytest.raises(ParameterError, match="has a token"):
        add_client(path, "ann", "owner")
    new = renew_client(path, "ann")
    tokens = Tokens.read(path)
    assert tokens.find(old) is None
    assert tokens.find(new) == Client("ann", "analyst", token_hash(new), 3)
    remove_client(path, "ann")
    assert Tokens.read(path).clients == ()
    for change in (remove_client, renew_client):
        with pytest.raises(ParameterError, match="no token"):
            change(path, "ann")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "tokens.json"
    add_client(path, "ann", "analyst")
    path.chmod(mode)
    with pytest.raises(ParameterError, match="chmod 600"):
        Tokens.read(path)


ENTRY = {"client": "ann", "role": "analyst", "sha256": "0" * 64, "quota": None, "rate": None}
WRONG = {
    "no JSON": "{",
    "no object": "[]",
    "another format": json.dumps({"format": 2, "clients": []}),
    "no clients": json.dumps({"format": 1}),
    **{
        name: json.dumps({"format": 1, "clients": [{**ENTRY, **change}]})
        for name, change in {
            "role": {"role": "root"},
            "hash": {"sha256": "zz"},
            "quota": {"quota": -1},
            "quota of text": {"quota": "3"},
            "quota of truth": {"quota": True},
            "rate": {"rate": 0},
            "rate of text": {"rate": "1"},
            "name": {"client": ""},
            "name with a line": {"client": "a\nb"},
            "unknown field": {"token": "x"},
        }.items()
    },
    "client twice": json.dumps({"format": 1, "clients": [ENTRY, {**ENTRY, "sha256": "1" * 64}]}),
    "hash twice": json.dumps({"format": 1, "clients": [ENTRY, {**ENTRY, "client": "bob"}]}),
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG.keys())
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "tokens.json"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(ParameterError, match=r"tokens\.json"):
        Tokens.read(path)


def test_a_missing_file_and_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="pate token add"):
        Tokens.read(tmp_path / "none.json")
    with pytest.raises(ParameterError, match="folder"):
        add_client(tmp_path / "no" / "tokens.json", "ann", "analyst")


def test_two_who_add_at_once_lose_nobody(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from pate.aggregators.service.tokens import add_client\n"
    code += "for n in range(10): add_client(Path(sys.argv[1]), f'{sys.argv[2]}{n}', 'analyst')"
    root = str(Path(__file__).parents[3])
    path = tmp_path / "tokens.json"
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(path), name], env={**os.environ, "PYTHONPATH": root}) for name in "ab"
    ]
    assert [each.wait(60) for each in both] == [0, 0]
    assert len(Tokens.read(path).clients) == 20


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of token files, to be moved on by hand."""
    time = [100.0]
    monkeypatch.setattr("pate.aggregators.service.token_file.time.monotonic", lambda: time[0])
    return time


def test_a_changed_file_is_taken_up(tmp_path: Path, now: list[float]) -> None:
    path = tmp_path / "tokens.json"
    ann = add_client(path, "ann", "analyst", quota=3)
    heard: list[dict[str, int]] = []
    known = TokenFile(path, lambda tokens: heard.append(tokens.quotas))
    assert known.find(ann) is not None
    bob = add_client(path, "bob", "analyst", quota=5)
    remove_client(path, "ann")
    assert known.find(bob) is None  # not looked at with every request
    now[0] += 1
    assert known.find(ann) is None
    assert known.find(bob) == Client("bob", "analyst", token_hash(bob), 5)
    assert heard == [{"ann": 3}, {"bob": 5}]


@pytest.mark.parametrize("how", ["gone", "damaged", "read by others"])
def test_while_the_file_cannot_be_read_nobody_is_let_in(tmp_path: Path, now: list[float], how: str) -> None:
    path = tmp_path / "tokens.json"
    ann = add_client(path, "ann", "analyst")
    content = path.read_bytes()
    known = TokenFile(path, lambda _: None)
    if how == "gone":
        path.unlink()
    elif how == "damaged":
        path.write_bytes(content[:-5])
    else:
        path.chmod(0o644)
    for _ in range(3):
        now[0] += 1
        assert known.find(ann) is None
    path.write_bytes(content)
    path.chmod(0o600)
    now[0] += 1
    assert known.find(ann) is not None


def test_a_bucket_lets_a_burst_through_and_then_the_rate() -> None:
    now = [100.0]
    limiter = RateLimiter(clock=lambda: now[0])
    assert [limiter.wait("ann", 4.0) for _ in range(5)] == [0, 0, 0, 0, 0.25]
    now[0] += 0.25
    assert limiter.wait("ann", 4.0) == 0
    assert limiter.wait("ann", 4.0) == 0.25
    now[0] += 1000
    assert sum(limiter.wait("ann", 4.0) == 0 for _ in range(10)) == 4  # a long pause saves up no more than a second's worth


def test_a_slow_rate_still_lets_one_through() -> None:
    now = [0.0]
    limiter = RateLimiter(clock=lambda: now[0])
    assert (limiter.wait("ann", 0.1), limiter.wait("ann", 0.1)) == (0, 10)
    now[0] = 9.0
    assert limiter.wait("ann", 0.1) == pytest.approx(1)
    now[0] = 10.0
    assert limiter.wait("ann", 0.1) == pytest.approx(0, abs=1e-9)


def test_buckets_are_apart_and_no_rate_is_no_limit() -> None:
    limiter = RateLimiter(clock=lambda: 0.0)
    assert (limiter.wait("ann", 1.0), limiter.wait("ann", 1.0), limiter.wait("bob", 1.0)) == (0, 1, 0)
    assert all(limiter.wait("ann", None) == 0 for _ in range(100))
    with pytest.raises(ParameterError, match="above 0"):
        limiter.wait("ann", 0.0)
