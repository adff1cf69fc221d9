"""Small teachers, many at once, in NumPy alone: logistic regression, ridge regression and a perceptron with one hidden layer.

Each gives the same bits alone and in any batch. How that is kept, by construction:

1. A matrix product is called for one teacher at a time, on operands whose shapes follow from that teacher's own records and
   from public settings. Nothing is padded to the longest part.
2. What is done for all teachers at once is elementwise, or a reduction over classes, one column for each record. Each teacher's
   elements begin at a 64-byte boundary and fill whole vectors, so a vector unit treats them as it would alone.
3. Every operand begins at a 64-byte boundary, so that not even the address at which records lie can matter.
"""

from __future__ import annotations

from pate.teachers.batched.logistic import LogisticTeachers
from pate.teachers.batched.mlp import MLPTeachers
from pate.teachers.batched.ridge import RidgeTeachers

__all__ = ["LogisticTeachers", "MLPTeachers", "RidgeTeachers"]
