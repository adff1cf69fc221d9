"""Experiments: data sets, recipes, the pipeline, benchmarks and reports."""

if __name__ != "pate.experiments":  # under its bare name every class would exist twice
    raise ImportError("Import this package as pate.experiments, not as experiments.")
