"""Teachers: models trained on disjoint private partitions, and their votes."""

if __name__ != "pate.teachers":  # under its bare name every class would exist twice
    raise ImportError("Import this package as pate.teachers, not as teachers.")
