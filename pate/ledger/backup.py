"""Copies of an SQLite ledger, taken while it is in use, and put back where it was lost.

A copy is the whole database at one moment, a service's answers included, verified, with a head file of its own. Putting back an
old copy forgets what was spent since, so that is refused unless the lost ledger's own head file says that nothing was, or its
owner takes it upon himself.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pate.errors import LedgerError
from pate.ledger.chain import Chain
from pate.ledger.head import Claim, Claims, head_path, read_claims, sync_folder, write_claims
from pate.ledger.sqlite import BUSY_SECONDS, SqliteStore

FORGET = "--i-know-what-was-spent-since-is-forgotten"
Place = str | os.PathLike[str]
Check = Callable[[Path], None]
"""Looks at a copy that is whole but not in place yet; raises LedgerError to stop it there."""


def back_up(ledger: Place, destination: Place, check: Check = lambda _: None) -> Claims:
    """Copy a ledger that may be in use to a new file; the last row of each data set in the copy."""
    target = _real(destination)
    store = SqliteStore(_real(ledger), create=False)
    try:
        for taken in (target, head_path(target)):
            if taken.exists():
                raise LedgerError(
                    f"Backup {target}: {taken.name} is there already. Give a new name, such as one with the date."
                )
        with _copy(store, target, check) as (copy, claims):
            try:
                os.link(head_path(copy), head_path(target))
                os.link(copy, target)
            except FileExistsError:
                raise LedgerError(f"Backup {target}: another one is being made under this name. Give another.") from None
            sync_folder(target.parent)
    finally:
        store.disconnect()
    return claims


def restore(backup: Place, ledger: Place, *, forget: bool = False, check: Check = lambda _: None) -> Claims:
    """Put a backup where a ledger was lost; the last row of each data set in it.

    forget: also where rows may be, or are, missing from it.
    """
    target = _real(ledger)
    store = SqliteStore(_real(backup), create=False)
    try:
        for left in (target, *(target.with_name(target.name + end) for end in ("-wal", "-shm", "-journal"))):
            if left.exists():
                raise LedgerError(_still_there(target, left, store))
        with _copy(store, target, check) as (copy, claims):
            missing = _missing(target, copy)
            if missing is not None and not forget:
                raise LedgerError(
                    f"Ledger {target}: {missing} Restoring this backup forgets what was spent since. Look for a newer copy "
                    f"first. If there is none, charge the releases made since by hand afterwards, and give {FORGET}."
                )
            if missing is not None and head_path(target).exists():
                kept = head_path(target).with_name(f"{head_path(target).name}.forgotten-{secrets.token_hex(4)}")
                os.replace(head_path(target), kept)  # the one witness of what is forgotten
            # The head file first: if this stops here, the next opening says that the database is missing.
            write_claims(head_path(target), claims)
            try:
                os.link(copy, target)
            except FileExistsError:
                raise LedgerError(f"Ledger {target}: another process made it a moment ago. Look at it first.") from None
            sync_folder(target.parent)
    finally:
        store.disconnect()
    return claims


def _real(place: Place) -> Path:
    name = os.fspath(place)
    if "://" in name:
        raise LedgerError(
            "Only a ledger in an SQLite file is backed up here. For PostgreSQL use pg_dump and pg_restore, with all tables "
            "pate_*: they take a consistent copy of a database in use."
        )
    real = Path(os.path.realpath(name))
    if not real.parent.is_dir():
        raise LedgerError(f"{real}: there is no folder {real.parent}. Make it first.")
    return real


@contextmanager
def _copy(store: SqliteStore, target: Path, check: Check) -> Iterator[tuple[Path, Claims]]:
    """A verified copy of a whole ledger beside ``target``, with its head file; both names are gone at the end."""
    copy = target.with_name(f"{target.name}.{secrets.token_hex(8)}")
    try:
        confirmed = store.claims()  # before the copy: what is claimed now must be in it
        try:
            with (
                closing(sqlite3.connect(store.path, timeout=BUSY_SECONDS)) as source,
                closing(sqlite3.connect(copy)) as made,
            ):
                source.backup(made)  # all pages in one step: one snapshot, and no writer waits
        except sqlite3.Error as error:
            raise store.failure(error) from error
        copy.chmod(store.path.stat().st_mode & 0o777)
        claims = _verified(copy)
        for fingerprint, claim in confirmed.items():
            if fingerprint not in claims or claims[fingerprint].sequence < claim.sequence:
                raise store.broken(f"the copy lacks row {claim.sequence} of data set {fingerprint!r}")
        write_claims(head_path(copy), claims)
        check(copy)
        with copy.open("rb") as file:
            os.fsync(file.fileno())
        yield copy, claims
    except OSError as error:
        raise store.failure(error) from error
    finally:
        for end in ("", ".head", "-wal", "-shm", "-journal"):
            copy.with_name(copy.name + end).unlink(missing_ok=True)


def _verified(path: Path) -> Claims:
    """The last row of each data set, after reading the database and every chain from its first row."""
    store = SqliteStore(path, create=False, trust_head=False)
    try:
        with store.transaction() as connection:
            chains = [store.extend(Chain(each), store.rows(connection, each)) for each in store.fingerprints(connection)]
        return {chain.fingerprint: Claim(chain.sequence, chain.head) for chain in chains}
    finally:
        store.disconnect()


def _missing(target: Path, copy: Path) -> str | None:
    """What a lost ledger's head file says that the copy lacks; None if it says that nothing is missing."""
    try:
        claimed = read_claims(head_path(target))
    except LedgerError:
        return f"its head file {head_path(target).name} is damaged, so nobody can say whether rows are missing."
    if claimed is None:
        return "its head file is gone with it, so nobody can say whether rows are missing."
    store = SqliteStore(copy, create=False)
    try:
        with store.transaction() as connection:
            for fingerprint, claim in claimed.items():
                row = store.row(connection, fingerprint, claim.sequence)
                if row is None or row.hash != claim.hash:
                    return (
                        f"{head_path(target).name} says that data set {fingerprint!r} had {claim.sequence} rows, "
                        "and the backup lacks the last of them."
                    )
    finally:
        store.disconnect()
    return None


def _still_there(target: Path, left: Path, backup: SqliteStore) -> str:
    """Why a ledger that exists is not overwritten; with how much newer it is, where that can be read."""
    newer = ""
    if left == target:
        try:
            rows, had = (sum(claim.sequence for claim in _verified(path).values()) for path in (target, backup.path))
            newer = f" It is sound, with {rows} rows; the backup has {had}." + (" Keep it." if rows >= had else "")
        except LedgerError:
            newer = " It is damaged: keep it for inquiry."
    return (
        f"Ledger {target}: {left.name} is there, and a restore never overwrites.{newer} If it must be replaced, stop every run "
        f"on it and move {target.name}, and {target.name}-wal and -shm if they are there, away; but leave "
        f"{head_path(target).name}, which knows what was spent."
    )
