"""The built-in recipes, and a new one to begin with."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pate.errors import ParameterError
from pate.experiments.array_files import check_place_for, write_text
from pate.experiments.recipes.reading import SUFFIX, built_in_recipes, find_recipe

OWN = """\
# A run on your own data. Paths are named from this file's directory. `pate recipes show FILE` says what is wrong with it.
title = "{title}"

[data]
source = "files"
dataset = "{title}"         # names these people in the ledger: never change it, or their budget begins anew
private = "private.csv"     # .csv, .parquet, .npz, or a directory of pictures with a sub-directory for each class
public = "public.csv"       # the same columns without labels: others' records, that anybody may see
test = "test.csv"           # labelled records to measure the student on, once; leave out if there are none
classes = ["no", "yes"]     # all classes there can be, in the order of the labels 0, 1, …; declared, not counted
id = "id"                   # column that names a record for good
label = "label"
# group_by = "patient"      # column that names the person, where one person has several records

[features]                  # before teachers and queries; fitted on the public records. Leave out to take records as they are
name = "standardise"

[teachers]
model = "logistic"          # see `pate teachers models`; "nearest" lets every record vote and trains nothing
count = 250                 # with "nearest": voters = 100_000 in its place, the most records there can be

[queries]
count = 200                 # public records to ask about

[aggregator]
name = "gnmax"
sigma = "auto"              # the least noise with which all queries fit in the budget

[privacy]
epsilon = 1.0               # of all that is ever asked of these data
delta = 1e-5                # below one over the number of records
# ledger = "ledger.db"      # one place for all runs of yours unless given; a PostgreSQL URL works too

[student]
model = "vote-share"        # see `pate student models`

[dpsgd]                     # for `pate dpsgd FILE`: the same data and budget by gradient descent, to compare with
model = "logistic"
lot_size = 256
rate = 0.01                 # chance of a record to enter a lot: a round number near lot_size over the number of records
epochs = 20.0

[erm]                       # for `pate erm FILE`, two classes: a linear model with noise in what it minimises
model = "logistic"
data_norm = 3.0             # longer records (here in deviations of the public ones) are cut to this; declared, never learned
records = 1000              # how many people there are, about: a round number, which is published
"""


def descriptions() -> dict[str, str]:
    """What each built-in recipe is, in a line."""
    return {
        name: str(tomllib.loads(path.read_text("utf-8")).get("description", "")) for name, path in built_in_recipes().items()
    }


def write_new(path: Path, like: str | None = None) -> None:
    """A new recipe file; one that is there is not overwritten."""
    if path.suffix != SUFFIX:
        raise ParameterError(f"{path}: a recipe's name must end in {SUFFIX}.")
    check_place_for(path)
    if path.exists():
        raise ParameterError(f"{path}: there is a file already, and it is not overwritten. Name another one.")
    text = OWN.format(title=path.stem) if like is None else find_recipe(like).read_text("utf-8")
    write_text(path, text)
