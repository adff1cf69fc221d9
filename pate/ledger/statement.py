"""A signed statement: what a ledger says was spent, of which budget, and where its chain of rows ends. May be shown to anybody.

Signed with Ed25519 (RFC 8032), over the canonical JSON of the statement (keys in order, no spaces, ASCII). Whoever holds the
public key can tell that the owner said so; and a ledger that was put back to before a statement, with its head file, is found
out.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pate.errors import LedgerError
from pate.extras import require
from pate.ledger.chain import canonical
from pate.ledger.ledger import Ledger
from pate.ledger.names import public_name

require("cryptography", "sign")

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: E402
from cryptography.hazmat.primitives import serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey  # noqa: E402

FORMAT = "pate-statement-1"


def make_keys(private: Path) -> Path:
    """A new key in ``private``, mode 0600 and without a password, and the public one beside it, whose path is returned."""
    public = private.with_name(f"{private.name}.pub")
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    shown = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for path, content, mode in ((private, secret, 0o600), (public, shown, 0o644)):
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(content)
        except FileExistsError:
            raise LedgerError(
                f"Key {path}: there is such a file, and no key is ever overwritten. Choose another name."
            ) from None
        except OSError as error:
            raise LedgerError(f"Key {path}: the file cannot be written ({error.strerror}). Choose another place.") from None
    return public


def sign(datasets: Sequence[Mapping[str, Any]], private: Path) -> dict[str, Any]:
    """A statement of these facts, one entry a data set as :func:`public_facts` gives it, as of now."""
    mode = _read(private)[1]
    if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise LedgerError(
            f"Key {private}: only its owner may read or write the file, its mode is {stat.S_IMODE(mode):04o}. "
            f"Run: chmod 600 {private}"
        )
    key = _loaded(private, "private")
    statement = {"format": FORMAT, "at": datetime.now(UTC).isoformat(timespec="seconds"), "datasets": list(datasets)}
    signature = key.sign(_signed_bytes(statement))
    return {"statement": statement, "signature": base64.b64encode(signature).decode()}


def check(document: Any, public: Path) -> dict[str, Any]:
    """The statement in a document that this key signed; LedgerError where it did not."""
    key = _loaded(public, "public")
    try:
        statement, signature = document["statement"], base64.b64decode(document["signature"], validate=True)
        if statement["format"] != FORMAT:
            raise ValueError
    except (TypeError, KeyError, ValueError, binascii.Error):
        raise LedgerError(f"The statement is not as `pate ledger sign` writes it, format {FORMAT}. Ask for it again.") from None
    try:
        key.verify(signature, _signed_bytes(statement))
    except InvalidSignature:
        raise LedgerError(
            f"The statement was not signed with the key of {public}, or was changed since: believe nothing of it. Ask its "
            "owner for the public key and the statement, by another way than they came."
        ) from None
    found: dict[str, Any] = statement
    return found


def check_names(fingerprints: Sequence[str]) -> None:
    """Raise LedgerError if a statement of all of them would tell that somebody came or went."""
    names = Counter(map(public_name, fingerprints))
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise LedgerError(
            f"The ledger holds several data sets named {twice[0]!r}, as who is in them changed, and a statement of all would "
            "tell that. Name one: --dataset FINGERPRINT (`pate ledger show` lists them), and say beside it that costs add up."
        )


def public_facts(ledger: Ledger, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of a ledger with the name in place of the fingerprint, and "opened", the hash by which it is known again."""
    first = next(iter(ledger.rows()))
    if "secret" not in json.loads(first.payload):
        raise LedgerError(
            f"{ledger!r} was begun by an earlier version, and its hashes would tell whoever knows all ids but one whether the "
            "last is in the data. State its figures (`pate ledger show`) without fingerprint and head."
        )
    facts = {name: value for name, value in summary.items() if name != "fingerprint"}
    return {"dataset": public_name(ledger.fingerprint), "opened": first.hash, **facts}


def check_held(place: str, entry: Mapping[str, Any]) -> None:
    """Raise LedgerError unless the ledger there has every row that a statement's entry about one data set speaks of."""
    for fingerprint in Ledger.datasets(place):
        if public_name(fingerprint) == entry["dataset"]:
            with Ledger.open(place, fingerprint) as ledger:
                if next(iter(ledger.rows())).hash == entry["opened"]:
                    _check_rows(ledger, entry)
                    return
    raise LedgerError(
        f"Ledger {place}: the one that the statement speaks of, of data set {entry['dataset']!r}, is not in it. Was it begun "
        "anew? What was spent before is forgotten then: find the true one."
    )


def _check_rows(ledger: Ledger, entry: Mapping[str, Any]) -> None:
    stated = int(entry["entries"])
    row = next(iter(ledger.rows(after=stated - 1)), None)
    if row is None or row.hash != entry["head"]:
        raise LedgerError(
            f"{ledger!r} is not the one of the statement, or was put back to before it: row {stated} is "
            f"{'missing' if row is None else 'another one'}. What was spent since then is forgotten in it; find the true "
            "one, or a later backup, before anybody asks again."
        )


def _signed_bytes(statement: Mapping[str, Any]) -> bytes:
    return canonical(statement).encode()


def _read(path: Path) -> tuple[bytes, int]:
    try:
        return path.read_bytes(), path.stat().st_mode
    except OSError as error:
        raise LedgerError(f"Key {path}: the file cannot be read ({error.strerror}). `pate ledger key` makes a pair.") from None


def _loaded(path: Path, which: str) -> Any:
    """An Ed25519 key in PEM."""
    content = _read(path)[0]
    wanted: type = Ed25519PrivateKey if which == "private" else Ed25519PublicKey
    try:
        private = which == "private"
        key: object = (
            serialization.load_pem_private_key(content, None) if private else serialization.load_pem_public_key(content)
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, wanted):
        raise LedgerError(
            f"Key {path}: it must be a {which} Ed25519 key in PEM, without a password, as `pate ledger key` makes it."
        )
    return key
