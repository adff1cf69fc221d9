"""Students: they see public data and a release, nothing else."""

if __name__ != "pate.student":  # under its bare name every class would exist twice
    raise ImportError("Import this package as pate.student, not as student.")

from pate.student.base import OneClassWarning, Student
from pate.student.queries import select_queries
from pate.student.registry import known_students, student

__all__ = ["OneClassWarning", "Student", "known_students", "select_queries", "student"]
