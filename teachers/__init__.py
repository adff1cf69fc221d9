"""Teachers: models trained on disjoint private partitions, and their votes."""

if __name__ != "pate.teachers":  # under its bare name every class would exist twice
    raise ImportError("Import this package as pate.teachers, not as teachers.")

from pate.teachers.data import PrivateData
from pate.teachers.ensemble import Ensemble
from pate.teachers.family import Part, TeacherFamily
from pate.teachers.nearest import nearest_votes
from pate.teachers.partition import Partition
from pate.teachers.registry import teacher_family
from pate.teachers.storage import Columns, StoredData, StoredPartition

__all__ = [
    "Columns",
    "Ensemble",
    "Part",
    "Partition",
    "PrivateData",
    "StoredData",
    "StoredPartition",
    "TeacherFamily",
    "nearest_votes",
    "teacher_family",
]
