"""Voters that need no training: every record votes its own label on the public queries nearest to it."""

from pate.teachers.nearest.votes import RECORDS_PER_TASK, nearest_votes

__all__ = ["RECORDS_PER_TASK", "nearest_votes"]
