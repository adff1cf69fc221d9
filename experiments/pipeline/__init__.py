"""From private data to a published student: the stages of a run, each found again by what it was made of."""
