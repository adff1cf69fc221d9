"""Students: they see public data and a release, nothing else."""

if __name__ != "pate.student":  # under its bare name every class would exist twice
    raise ImportError("Import this package as pate.student, not as student.")
