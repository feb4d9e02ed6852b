"""The published tables of masked differential privacy beside ours: `python -m benchmarks.action_paper table1 OUT`.

table1, table2, table3 and figure3 run the recipes `action/paper/…`: on drawn clips by default, on the datasets themselves with
`--set data.name=… --set data.masks=… --set model.size=s --set model.weights=KINETICS` (`real` rows) and `--anonymised FOLDER`, what
`halfmask data anonymise` wrote, for the others. 150 epochs of `finetune` take long on a processor: `--set strategy=top` trains the head
alone, `--set epochs=…` fewer. `--accountant rdp` and Theorem 4.1 stand side by side in `benchmarks.masked_theorem`. Published numbers:
Schneider et al., "Masked Differential Privacy", 2024, Tables 1 to 3, at ε of that paper's own accounting, which is not ours.
"""

from __future__ import annotations

from pathlib import Path

import cv2

from benchmarks.rows import Row, chosen, make, options_for, show
from halfmask.data.figures.movements import CARE_ACTIONS
from halfmask.gradients.mechanism import METHODS
from halfmask.report.class_plot import class_picture
from halfmask.report.published import rows as published_rows
from halfmask.training.grids import load_grid, narrowed
from halfmask.training.runs import read_json

METRICS = ("accuracy", "mean_class_accuracy")
TABLES = ("table1", "table2", "table3", "figure3")
# Table 3, which has no ε: `halfmask.report.published` has the others.
PUBLISHED = {
    "NTU RGB+D": {"real world": (83.8,), "avatar only": (54.8,), "background only": (9.9,), "anonymised": (68.3,)},
    "Toyota Smarthome": {"real world": (52.7,), "avatar only": (8.8,), "background only": (10.6,), "anonymised": (26.7,)},
}


def rows(table: str) -> list[Row]:
    """The rows that the recipe of a table names; those of figure 3 are of table 1, at one ε."""
    grid = load_grid(f"action/paper/{'table1' if table == 'figure3' else table}")
    assert grid is not None
    found = []
    for block in narrowed(grid, epsilons=[0.5]).blocks if table == "figure3" else grid.blocks:
        settings = tuple(f"{name}={str(value).lower()}" for name, value in block.settings.items())
        for method in block.methods:
            name = f"{block.data} {method}" if block.data else block.name
            noised = METHODS[method].private == "noised"
            found += [Row(name, method, epsilon, 1, settings) for epsilon in (block.epsilons if noised else (5.0,))]
    return found


def published(table: str) -> dict[str, dict[str, tuple[float, ...]]]:
    """What the paper prints, by dataset and row."""
    if table == "table3":
        return PUBLISHED
    found: dict[str, dict[str, tuple[float, ...]]] = {}
    for row in published_rows("action.csv"):
        if f"table{row['table']}" == table:
            lines = found.setdefault(row["dataset"], {})
            name = f"{row['data']} {row['method']}"
            lines[name] = (*lines.get(name, ()), float(row["accuracy"] or row["mean_class_accuracy"]))
    return found


def main() -> None:
    parser = options_for(__doc__, TABLES)
    parser.add_argument("--anonymised", help="the anonymised copy of a dataset that is not drawn")
    options = parser.parse_args()
    some = chosen(rows(options.dataset), options)
    if options.anonymised:
        # A folder takes the place of what would be drawn; its real twin is what the other settings name.
        for row in some:
            copy = [] if row.name.startswith("real") else [f"data.name={options.anonymised}", "data.masks=own"]
            make([row], f"action/paper/{options.dataset}", _with(options, ["data.anonymised=false", *copy]))
    else:
        make(some, f"action/paper/{options.dataset}", options)
    show(options.out, some, METRICS)
    for dataset, lines in published(options.dataset).items():
        print(f"\nPublished, {dataset}:")
        for name, values in lines.items():
            print(f"  {name:24s} {'  '.join(f'{value:5.1f}' for value in values)}")
    if options.dataset == "figure3":
        picture = options.out / "figure3.png"
        cv2.imwrite(str(picture), draw(options.out)[..., ::-1])
        print(f"\nwritten: {picture}")


def _with(options, settings: list[str]):  # type: ignore[no-untyped-def]
    from argparse import Namespace

    return Namespace(**(vars(options) | {"others": [*options.others, *settings]}))


def draw(out: Path):  # type: ignore[no-untyped-def]
    """What privacy loses class by class on real clips, and what masking regains on anonymised ones; from the runs that are there."""
    wanted = {"non-private": "real non-private-5-0", "dpsgd": "real dpsgd-0.5-0", "masked": "anonymised masked-0.5-0"}
    wanted |= {"public-only": "anonymised public-only-5-0"}
    accuracies = {}
    for method, run in wanted.items():
        body = read_json(out / run.replace(" ", "_") / "metrics.json")
        if body is not None:
            accuracies[method] = body["parts"]
    kept = [0.875**place for place in range(len(CARE_ACTIONS))]
    shares = {name: share / sum(kept) for name, share in zip(CARE_ACTIONS, kept, strict=True)}
    return class_picture(accuracies, shares, "ε = 0.5: what privacy loses, and what masking regains")


if __name__ == "__main__":
    main()
