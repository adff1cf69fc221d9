"""The side file ``<ledger>.head``: for each data set, the last row that is known to have been committed.

A hash chain cannot tell that its last rows are missing: a shorter chain is a valid chain. This file can. It is
written after a commit and before the caller is told, under the database's write lock, so

- every row that a release may have followed is claimed here, and a database without it was rolled back or cut;
- a crash between commit and this write leaves a database that is one row ahead, which nothing was released on: harmless.
- a settlement may leave this write to the next row (:meth:`Ledger.settle`): its reservation is claimed, so without it the
  worst case is charged.

It is created, empty, before the database, so that a database without it is an error and never a fresh start.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pate.errors import LedgerError
from pate.ledger import faultpoints
from pate.ledger.chain import canonical

FORMAT = "pate-ledger-head-1"


class Claim(NamedTuple):
    """A row that must exist."""

    sequence: int
    hash: str


Claims = dict[str, Claim]


def head_path(ledger: Path) -> Path:
    """Where the side file of a ledger stands."""
    return ledger.with_name(ledger.name + ".head")


def read_claims(path: Path) -> Claims | None:
    """What the head file claims, or None where there is no such file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise LedgerError(
            f"Ledger head file {path}: cannot be read ({error.strerror}). Make it readable, then retry."
        ) from None
    try:
        document = json.loads(text)
        body = {"format": FORMAT, "heads": document["heads"]}
        if document["check"] != _check(body) or document["format"] != FORMAT:
            raise ValueError("its check sum does not match")
        return {fingerprint: Claim(int(head[0]), str(head[1])) for fingerprint, head in document["heads"].items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise LedgerError(
            f"Ledger head file {path}: damaged ({error}). Restore it from a backup together with the ledger; if you are sure "
            "that the ledger itself is complete, rebuild it with: pate ledger verify LEDGER --rebuild-head"
        ) from None


def write_claims(path: Path, claims: Claims) -> None:
    """Replace the head file durably: temporary file, fsync, rename, fsync of the folder. One writer at a time."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    with _synced_file(path.with_name(path.name + ".new"), claims, mode) as temporary:
        faultpoints.reached("head file written")
        os.replace(temporary, path)
        faultpoints.reached("head file renamed")
    sync_folder(path.parent)


def create_claims(path: Path) -> None:
    """Write an empty head file, unless there is one: another process may be creating the same ledger."""
    with _synced_file(path.with_name(f"{path.name}.{secrets.token_hex(8)}"), {}) as temporary, suppress(FileExistsError):
        os.link(temporary, path)
    sync_folder(path.parent)


@contextmanager
def _synced_file(path: Path, claims: Claims, mode: int = 0o600) -> Iterator[Path]:
    """Write the claims to ``path`` and sync; the file is gone at the end unless it was renamed."""
    body = {"format": FORMAT, "heads": {fingerprint: list(claim) for fingerprint, claim in claims.items()}}
    try:
        # For the owner: the fingerprints in it are hashes of who is in the data. A mode that was changed since stays.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), mode)
            file.write(canonical({**body, "check": _check(body)}) + "\n")
            file.flush()
            os.fsync(file.fileno())
        yield path
    finally:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name in ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check(body: object) -> str:
    return hashlib.sha256(canonical(body).encode()).hexdigest()
