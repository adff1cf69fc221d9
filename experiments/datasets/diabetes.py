"""Diabetes: 130 US hospitals, 1999-2008 (Strack et al. 2014, UCI): is a patient readmitted within 30 days?"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import ClassVar

import numpy as np

from pate.arrays import IntArray
from pate.digests import keyed_place
from pate.errors import DataError, ParameterError
from pate.experiments.datasets.base import Benchmark, HiddenLabels, Split, TestSet
from pate.experiments.datasets.columns import Table, as_table
from pate.experiments.datasets.files import KnownFile
from pate.features.base import Float32Array
from pate.teachers import PrivateData

ARCHIVE = KnownFile(
    "diabetes/dataset_diabetes.zip", 3174799, "2cc570fc34b09ba1169d94b68c27ce3802dce7dc4ab6082bed833a6c195507a5"
)
MEMBER = "dataset_diabetes/diabetic_data.csv"
RECORDS = 101_766

MEDICINES = (
    *("metformin", "repaglinide", "nateglinide", "chlorpropamide", "glimepiride", "acetohexamide", "glipizide"),
    *("glyburide", "tolbutamide", "pioglitazone", "rosiglitazone", "acarbose", "miglitol", "troglitazone", "tolazamide"),
    *("examide", "citoglipton", "insulin", "glyburide-metformin", "glipizide-metformin", "glimepiride-pioglitazone"),
    *("metformin-rosiglitazone", "metformin-pioglitazone"),
)
COLUMNS = (
    *("encounter_id", "patient_nbr", "race", "gender", "age", "weight", "admission_type_id", "discharge_disposition_id"),
    *("admission_source_id", "time_in_hospital", "payer_code", "medical_specialty", "num_lab_procedures"),
    *("num_procedures", "num_medications", "number_outpatient", "number_emergency", "number_inpatient"),
    *("diag_1", "diag_2", "diag_3", "number_diagnoses", "max_glu_serum", "A1Cresult"),
    *(*MEDICINES, "change", "diabetesMed", "readmitted"),
)
RACES = ("Caucasian", "AfricanAmerican", "Hispanic", "Asian", "Other")

# The numbers of IDs_mapping.csv.
ADMISSIONS = {"emergency": ("1", "7"), "urgent": ("2",), "elective": ("3",)}
DISCHARGES = {
    "home": ("1", "6", "8"),
    "elsewhere": ("2", "3", "4", "5", "9", "10", "12", "15", "16", "17", "22", "23", "24", "27", "28", "29", "30"),
    "against advice": ("7",),
    "hospice or dead": ("11", "13", "14", "19", "20", "21"),
}
SOURCES = {
    "referral": ("1", "2", "3"),
    "transfer": ("4", "5", "6", "10", "18", "19", "22", "25", "26"),
    "emergency room": ("7",),
}

# Groups of ICD-9 codes, first and last, as in table 2 of Strack et al.
DIAGNOSES = {
    "circulatory": ((390, 459), (785, 785)),
    "respiratory": ((460, 519), (786, 786)),
    "digestive": ((520, 579), (787, 787)),
    "diabetes": ((250, 250),),
    "injury": ((800, 999),),
    "musculoskeletal": ((710, 739),),
    "genitourinary": ((580, 629), (788, 788)),
    "neoplasms": ((140, 239),),
}


@dataclass(frozen=True)
class Diabetes(Benchmark):
    """Is a patient readmitted within 30 days? A table, encoded by declared constants; the unit is the patient.

    A keyed hash of the patient's number makes 70% of the patients private, 15% public, and leaves 15% for the test.

    encoding: "full", 88 columns; or "small", 11, in the sizes in which records are to be compared: what the LACE index of
    readmissions (van Walraven et al. 2010) is made of, then age, medicines and where a patient went.
    """

    name: ClassVar[str] = "diabetes"
    files: ClassVar[tuple[KnownFile, ...]] = (ARCHIVE,)
    encoding: str = "full"

    def __post_init__(self) -> None:
        if self.encoding not in ENCODINGS:
            raise ParameterError(f"diabetes encoding must be one of {', '.join(ENCODINGS)}, got {self.encoding!r}.")

    def load(self, root: Path) -> Split:
        table = read(ARCHIVE.checked(root), RECORDS)
        x, y = ENCODINGS[self.encoding](table), labels(table)
        patients = np.array(table.columns["patient_nbr"])
        place = keyed_place(patients, "diabetes-split", 20)
        private, public, test = place < 14, (place >= 14) & (place < 17), place >= 17
        return Split(
            name=self.name,
            protocol="70% / 15% / 15% of patients",
            private=PrivateData(
                x[private], y[private], ids=np.flatnonzero(private), group_by=patients[private], name=self.name
            ),
            public_x=x[public],
            test=TestSet(lambda: (x[test], y[test])),
            public_labels=HiddenLabels(lambda: y[public]),
            class_names=("not within 30 days", "readmitted within 30 days"),
            test_is_public=True,
        )


def read(path: Path, expected: int) -> Table:
    """The table in the archive."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(MEMBER) as file:
            rows = list(csv.reader(io.TextIOWrapper(file, "ascii", newline="")))
    except (zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"{path} must be a zip archive with {MEMBER}: {error}. Fetch the original again.") from error
    if not rows or tuple(rows[0]) != COLUMNS:
        found = ", ".join(rows[0][:3]) if rows else "nothing"
        raise DataError(f"{path}: {MEMBER} must begin with the names of its {len(COLUMNS)} columns, found {found}, …")
    return as_table(str(path), COLUMNS, rows[1:], expected)


def labels(table: Table) -> IntArray:
    """int64[record]: 1 where readmitted within 30 days."""
    return table.one_hot("readmitted", ("NO", ">30", "<30"))[:, 2].astype(np.int64)


def small(table: Table) -> Float32Array:
    """float32[record, 11]; the larger a column's scale, the more it counts where records are compared."""
    visits = {kind: np.log(21) * table.log(f"number_{kind}", 20) for kind in ("inpatient", "emergency", "outpatient")}
    discharge = table.grouped("discharge_disposition_id", DISCHARGES)
    elsewhere, dead = (discharge[:, [list(DISCHARGES).index(group)]] for group in ("elsewhere", "hospice or dead"))
    parts = (
        *(1.5 * visits["inpatient"], visits["emergency"], 0.5 * visits["outpatient"]),
        *(0.7 * table.number("time_in_hospital", 4, 3), 0.7 * table.number("number_diagnoses", 7, 2)),
        *(0.5 * table.number("num_medications", 16, 8), 0.5 * _decades(table).number("age", 65, 15)),
        *(elsewhere, dead, 0.7 * table.among("diabetesMed", ("Yes",)), 0.7 * table.among("insulin", ("Up", "Down"))),
    )
    return np.concatenate(parts, axis=1).astype(np.float32)


def _decades(table: Table) -> Table:
    """The column of ages alone, each as the first year of its decade."""
    decades = {f"[{decade}-{decade + 10})": str(decade) for decade in range(0, 100, 10)}
    return Table(table.source, {"age": [decades.get(each, each) for each in table.columns["age"]]})


def full(table: Table) -> Float32Array:
    """float32[record, 88]; an unknown category is none of the columns."""
    groups = Table(table.source, {name: [_diagnosis(code) for code in table.columns[name]] for name in _DIAGNOSIS_COLUMNS})
    parts: tuple[Float32Array, ...] = (
        *(
            _decades(table).number("age", 50, 30),
            table.number("time_in_hospital", 4, 3),
            table.number("num_lab_procedures", 43, 20),
        ),
        *(table.number("num_procedures", 1, 2), table.number("num_medications", 16, 8), table.number("number_diagnoses", 7, 2)),
        *(table.log(f"number_{kind}", 20) for kind in ("outpatient", "emergency", "inpatient")),
        *(table.one_hot("race", RACES), table.among("gender", ("Male",))),
        *(table.grouped("admission_type_id", ADMISSIONS), table.grouped("discharge_disposition_id", DISCHARGES)),
        table.grouped("admission_source_id", SOURCES),
        *(groups.one_hot(name, [*DIAGNOSES, "other"], missing="?") for name in _DIAGNOSIS_COLUMNS),
        table.one_hot("max_glu_serum", ("Norm", ">200", ">300"), missing="None"),
        table.one_hot("A1Cresult", ("Norm", ">7", ">8"), missing="None"),
        *(table.among(medicine, ("Steady", "Up", "Down")) for medicine in MEDICINES),
        *(table.among("insulin", (change,)) for change in ("Up", "Down")),
        *(table.among("change", ("Ch",)), table.among("diabetesMed", ("Yes",))),
    )
    return np.concatenate(parts, axis=1)


_DIAGNOSIS_COLUMNS = ("diag_1", "diag_2", "diag_3")


@cache
def _diagnosis(code: str) -> str:
    """The group of an ICD-9 code; codes that begin with E or V are in none."""
    if code == "?":
        return code
    whole = code.partition(".")[0]
    number = int(whole) if whole.isdecimal() else -1
    found = (name for name, ranges in DIAGNOSES.items() if any(first <= number <= last for first, last in ranges))
    return next(found, "other")


ENCODINGS: Mapping[str, Callable[[Table], Float32Array]] = {"small": small, "full": full}
