"""Who may ask: a private JSON file of clients with the hashes of their tokens. The tokens themselves are kept nowhere."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from pate.errors import ParameterError

Role = Literal["analyst", "owner"]
PREFIX = "pate_"
_BYTES = 32  # 256 bits: guessing is hopeless, so a plain hash is enough
_MOST_NAME = 100
_FORMAT = 1


@dataclass(frozen=True)
class Client:
    """One client. quota: questions it may have paid for, for ever; rate: requests per second. None: no limit of its own."""

    client: str
    role: Role
    sha256: str
    quota: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        check_name(self.client)
        if self.role not in get_args(Role):
            raise ParameterError(f"Client {self.client!r}: the role must be analyst or owner, got {self.role!r}.")
        if not isinstance(self.sha256, str) or len(self.sha256) != 64 or set(self.sha256) - set("0123456789abcdef"):
            raise ParameterError(f"Client {self.client!r}: sha256 must be 64 hexadecimal digits, the hash of a token.")
        if self.quota is not None and (type(self.quota) is not int or self.quota < 0):
            raise ParameterError(f"Client {self.client!r}: the quota must be a whole number from 0, or null for none.")
        if self.rate is not None and (type(self.rate) not in (int, float) or not isfinite(self.rate) or self.rate <= 0):
            raise ParameterError(f"Client {self.client!r}: the rate must be above 0 requests per second, or null for none.")


def check_name(name: Any) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= _MOST_NAME or not name.isprintable() or name != name.strip():
        raise ParameterError(f"A client's name must be 1 to {_MOST_NAME} printable characters, got {name!r}.")


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(_BYTES)


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


class Tokens:
    """The clients of a service.

    >>> token = new_token()
    >>> tokens = Tokens([Client("ann", "analyst", token_hash(token), quota=10)])
    >>> tokens.find(token).client, tokens.find("pate_guess"), tokens.quotas
    ('ann', None, {'ann': 10})
    """

    def __init__(self, clients: Iterable[Client]) -> None:
        self.clients = tuple(clients)
        for what in ("client", "sha256"):
            if len({getattr(each, what) for each in self.clients}) < len(self.clients):
                raise ParameterError(f"Tokens: each {what} may stand there once. Remove the second entry.")
        self._hashes = [each.sha256.encode() for each in self.clients]

    def find(self, token: str) -> Client | None:
        """Whose token it is. Every entry is compared, in constant time, whether or not an earlier one fits."""
        given = hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest().encode()
        found = None
        for client, known in zip(self.clients, self._hashes, strict=True):
            if hmac.compare_digest(given, known):
                found = client
        return found

    @property
    def quotas(self) -> dict[str, int]:
        return {each.client: each.quota for each in self.clients if each.quota is not None}

    def __repr__(self) -> str:
        return f"Tokens({len(self.clients)} clients)"

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a file that nobody but its owner can read."""
        try:
            mode = path.stat().st_mode
            content = path.read_bytes()
        except OSError as error:
            raise ParameterError(
                f"Tokens {path}: the file cannot be read ({error.strerror}). `pate token add` makes one."
            ) from None
        if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ParameterError(
                f"Tokens {path}: only its owner may read or write the file, its mode is {stat.S_IMODE(mode):04o}. "
                f"Run: chmod 600 {path}"
            )
        try:
            document = json.loads(content)
            if document["format"] != _FORMAT:
                raise ValueError(f"format {document['format']!r}")
            return cls(Client(**entry) for entry in document["clients"])
        except ParameterError as error:
            raise ParameterError(f"Tokens {path}: {error}") from None
        except (ValueError, TypeError, KeyError) as error:
            raise ParameterError(
                f"Tokens {path}: the file must be as `pate token add` writes it, format {_FORMAT}; it is not "
                f"({type(error).__name__}). Restore it, or make it anew."
            ) from None

    def write(self, path: Path) -> None:
        """Put the file in its place whole, mode 0600."""
        text = json.dumps({"format": _FORMAT, "clients": [asdict(each) for each in self.clients]}, indent=1) + "\n"
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise ParameterError(f"Tokens {path}: the file cannot be written ({error.strerror}).") from None


def add_client(path: Path, name: str, role: Role, quota: int | None = None, rate: float | None = None) -> str:
    """Give a client a token, which is returned and kept nowhere."""
    token = new_token()
    client = Client(name, role, token_hash(token), quota, rate)

    def added(clients: tuple[Client, ...]) -> Iterable[Client]:
        if any(each.client == name for each in clients):
            raise ParameterError(f"Tokens {path}: {name!r} has a token. Remove it first, or choose another name.")
        return (*clients, client)

    _change(path, added)
    return token


def renew_client(path: Path, name: str) -> str:
    """A new token in place of a client's old one, with the same role and limits."""
    token = new_token()

    def renewed(clients: tuple[Client, ...]) -> Iterable[Client]:
        _check_known(path, name, clients)
        return [replace(each, sha256=token_hash(token)) if each.client == name else each for each in clients]

    _change(path, renewed)
    return token


def remove_client(path: Path, name: str) -> None:
    def kept(clients: tuple[Client, ...]) -> Iterable[Client]:
        _check_known(path, name, clients)
        return [each for each in clients if each.client != name]

    _change(path, kept)


def _check_known(path: Path, name: str, clients: tuple[Client, ...]) -> None:
    if all(each.client != name for each in clients):
        known = ", ".join(each.client for each in clients) or "nobody"
        raise ParameterError(f"Tokens {path}: {name!r} has no token; {known} has.")


def _change(path: Path, change: Callable[[tuple[Client, ...]], Iterable[Client]]) -> None:
    with _alone(path):
        clients = Tokens.read(path).clients if path.exists() else ()
        Tokens(change(clients)).write(path)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Two commands at once must not lose each other's entry. The folder is locked: the file itself is replaced."""
    try:
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise ParameterError(f"Tokens {path}: the folder cannot be opened ({error.strerror}). Make it first.") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
