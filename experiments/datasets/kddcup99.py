"""KDD Cup 1999, the 10% file: is a network connection an attack? (UCI)"""

from __future__ import annotations

import gzip
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from pate.arrays import IntArray
from pate.digests import keyed_place
from pate.errors import DataError
from pate.experiments.datasets.base import Benchmark, HiddenLabels, Split, TestSet
from pate.experiments.datasets.columns import Table, as_table
from pate.experiments.datasets.files import KnownFile
from pate.features.base import Float32Array
from pate.teachers import PrivateData

ARCHIVE = KnownFile(
    "kddcup99/kddcup.data_10_percent.gz", 2144903, "8045aca0d84e70e622d1148d7df782496f6333bf6eb979a1b0837c42a9fd9561"
)
RECORDS = 494_021

# kddcup.names names the columns; the services are those of the whole data set.
COLUMNS = (
    *("duration", "protocol_type", "service", "flag", "src_bytes", "dst_bytes", "land", "wrong_fragment", "urgent"),
    *("hot", "num_failed_logins", "logged_in", "num_compromised", "root_shell", "su_attempted", "num_root"),
    *("num_file_creations", "num_shells", "num_access_files", "num_outbound_cmds", "is_host_login", "is_guest_login"),
    *("count", "srv_count", "serror_rate", "srv_serror_rate", "rerror_rate", "srv_rerror_rate", "same_srv_rate"),
    *("diff_srv_rate", "srv_diff_host_rate", "dst_host_count", "dst_host_srv_count", "dst_host_same_srv_rate"),
    *("dst_host_diff_srv_rate", "dst_host_same_src_port_rate", "dst_host_srv_diff_host_rate", "dst_host_serror_rate"),
    *("dst_host_srv_serror_rate", "dst_host_rerror_rate", "dst_host_srv_rerror_rate", "label"),
)
PROTOCOLS = ("tcp", "udp", "icmp")
FLAGS = ("OTH", "REJ", "RSTO", "RSTOS0", "RSTR", "S0", "S1", "S2", "S3", "SF", "SH")
SERVICES = (
    *("IRC", "X11", "Z39_50", "aol", "auth", "bgp", "courier", "csnet_ns", "ctf", "daytime", "discard"),
    *("domain", "domain_u", "echo", "eco_i", "ecr_i", "efs", "exec", "finger", "ftp", "ftp_data", "gopher"),
    *("harvest", "hostnames", "http", "http_2784", "http_443", "http_8001", "imap4", "iso_tsap", "klogin"),
    *("kshell", "ldap", "link", "login", "mtp", "name", "netbios_dgm", "netbios_ns", "netbios_ssn", "netstat"),
    *("nnsp", "nntp", "ntp_u", "other", "pm_dump", "pop_2", "pop_3", "printer", "private", "red_i"),
    *("remote_job", "rje", "shell", "smtp", "sql_net", "ssh", "sunrpc", "supdup", "systat", "telnet"),
    *("tftp_u", "tim_i", "time", "urh_i", "urp_i", "uucp", "uucp_path", "vmnet", "whois"),
)
NORMAL = "normal."
# Amounts without a stated end: logarithms of what is plausible, clipped there.
_AMOUNTS = {"duration": 86_400.0, "src_bytes": 1e9, "dst_bytes": 1e9} | dict.fromkeys(
    (
        *("wrong_fragment", "urgent", "hot", "num_failed_logins", "num_compromised", "su_attempted", "num_root"),
        *("num_file_creations", "num_shells", "num_access_files", "num_outbound_cmds"),
    ),
    1e3,
)
# Windows of two seconds and of a hundred connections, whose counters end here.
_COUNTERS = {"count": 511.0, "srv_count": 511.0, "dst_host_count": 255.0, "dst_host_srv_count": 255.0}


@dataclass(frozen=True)
class KDDCup99(Benchmark):
    """Is a network connection an attack? A table, encoded by declared constants; 80% private, 10% public, 10% for the test.

    deduplicate: keep the first of equal connections. Two thirds are copies, so that without it most test records have a
    twin among the private and the public ones. It looks at all records, so it is for benchmarks, not for a release.
    """

    name: ClassVar[str] = "kddcup99"
    files: ClassVar[tuple[KnownFile, ...]] = (ARCHIVE,)
    deduplicate: bool = True

    @property
    def no_release(self) -> str | None:
        if not self.deduplicate:
            return None
        return (
            "deduplicate: true keeps the first of equal connections, so a private record decides whether a later copy is "
            "public. Set it to false for a release, or leave mode out: these data are a benchmark"
        )

    def load(self, root: Path) -> Split:
        path = ARCHIVE.checked(root)
        rows = read_rows(path)
        if len(rows) != RECORDS:
            raise DataError(f"{path} must hold {RECORDS:,} records, found {len(rows):,}. Fetch the original again.")
        first: dict[str, int] = {}
        same = np.array([first.setdefault(row, place) for place, row in enumerate(rows)])  # int64[record]: its first copy
        # The ids are rows of the source file whether or not copies are left out; each content is encoded once.
        ids = np.unique(same) if self.deduplicate else np.arange(len(rows))
        table = as_table(str(path), COLUMNS, [row.split(",") for row in first], len(first))
        content = np.searchsorted(np.unique(same), same[ids])
        x, y = encoded(table)[content], labels(table)[content]
        place = keyed_place(ids, "kddcup99-split", 10)
        private, public, test = place < 8, place == 8, place == 9
        return Split(
            name=self.name,
            protocol=f"80% / 10% / 10% of records, {'copies left out' if self.deduplicate else 'with copies'}",
            private=PrivateData(x[private], y[private], ids=ids[private], name=self.name),
            public_x=x[public],
            test=TestSet(lambda: (x[test], y[test])),
            public_labels=HiddenLabels(lambda: y[public]),
            class_names=("normal", "attack"),
            test_is_public=True,
        )


def read_rows(path: Path) -> list[str]:
    """The lines of the packed file."""
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            return file.read().splitlines()
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{path} must be a whole gzip file of text: {error}. Fetch the original again.") from error


def labels(table: Table) -> IntArray:
    """int64[record]: 0 where normal, 1 where an attack of any kind."""
    return 1 - table.among("label", (NORMAL,))[:, 0].astype(np.int64)


def encoded(table: Table) -> Float32Array:
    """float32[record, column], every column in 0..1."""
    plain = [name for name in COLUMNS if name.endswith("_rate") or name in ("land", "logged_in", "root_shell")]
    parts = (
        *(table.one_hot("protocol_type", PROTOCOLS), table.one_hot("flag", FLAGS), table.one_hot("service", SERVICES)),
        *(table.log(name, greatest) for name, greatest in _AMOUNTS.items()),
        *(table.number(name, scale=greatest) for name, greatest in _COUNTERS.items()),
        *(table.number(name) for name in (*plain, "is_host_login", "is_guest_login")),
    )
    return np.concatenate(parts, axis=1)
