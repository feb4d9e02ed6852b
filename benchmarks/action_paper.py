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
from halfmask.report.class_plot import class_picture
from halfmask.training.runs import read_json

METRICS = ("accuracy", "mean_class_accuracy")
TABLE1, TABLE2 = (0.1, 0.25, 0.5, 0.75, 1.0, 5.0), (0.5, 1.0, 2.0, 3.0, 5.0, 10.0)
REAL = ("data.anonymised=false",)
# Theirs changes clips at random only where there is no privacy.
CHANGED = ("augment.times=1",)
PUBLISHED = {
    "table1": {
        "NTU RGB+D (accuracy)": {
            "real dpsgd": (1.9, 2.43, 15.9, 49.9, 55.2, 70.8),
            "anonymised dpsgd": (1.7, 2.29, 14.3, 30.65, 39.2, 52.9),
            "anonymised masked": (4.2, 16.18, 35.5, 48.3, 51.0, 58.0),
            "real masked": (4.6, 26.6, 60.8, 61.0, 72.1, 77.3),
            "real non-private": (83.8,),
            "anonymised non-private": (68.3,),
        },
        "Toyota Smarthome (mean class accuracy)": {
            "real dpsgd": (2.6, 3.8, 8.0, 14.0, 20.2, 29.9),
            "anonymised dpsgd": (3.0, 3.6, 4.4, 4.7, 7.3, 16.9),
            "anonymised masked": (3.2, 9.1, 11.1, 14.4, 16.9, 17.1),
            "real masked": (3.9, 15.3, 18.9, 24.3, 27.3, 32.3),
            "real non-private": (52.7,),
            "anonymised non-private": (26.7,),
        },
    },
    "table2": {
        "HMDB-51 (accuracy)": {
            "real dpsgd": (2.3, 3.9, 6.6, 36.7, 65.8, 73.3),
            "anonymised dpsgd": (2.4, 3.3, 4.5, 13.5, 45.7, 57.7),
            "anonymised masked": (8.2, 7.8, 26.2, 39.67, 51.5, 50.9),
            "real non-private": (76.1,),
            "anonymised non-private": (60.9,),
        },
        "UCF-101 (accuracy)": {
            "real dpsgd": (1.2, 2.0, 66.7, 85.5, 93.1, 95.3),
            "anonymised dpsgd": (0.7, 1.5, 19.5, 65.6, 77.1, 82.1),
            "anonymised masked": (5.0, 15.4, 36.6, 63.9, 74.5, 73.9),
            "real non-private": (97.2,),
            "anonymised non-private": (85.9,),
        },
    },
    "table3": {
        "NTU RGB+D": {"real world": (83.8,), "avatar only": (54.8,), "background only": (9.9,), "anonymised": (68.3,)},
        "Toyota Smarthome": {"real world": (52.7,), "avatar only": (8.8,), "background only": (10.6,), "anonymised": (26.7,)},
    },
    "figure3": {},
}


def rows(table: str) -> list[Row]:
    if table == "table3":
        return [
            Row("avatar only", "public-only", seeds=1),
            Row("background only", "public-only", seeds=1, settings=("data.protect=person",)),
            Row("anonymised", "non-private", seeds=1, settings=CHANGED),
            Row("real world", "non-private", seeds=1, settings=(*REAL, *CHANGED)),
        ]
    epsilons = {"table1": TABLE1, "table2": TABLE2}.get(table, (0.5,))
    found = []
    for kind, settings in (("real", REAL), ("anonymised", ())):
        found.append(Row(f"{kind} public-only", "public-only", seeds=1, settings=settings))
        for method in ("dpsgd", "masked"):
            found += [Row(f"{kind} {method}", method, epsilon, 1, settings) for epsilon in epsilons]
        found.append(Row(f"{kind} non-private", "non-private", seeds=1, settings=(*settings, *CHANGED)))
    return found


def main() -> None:
    parser = options_for(__doc__, tuple(PUBLISHED))
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
    for dataset, published in PUBLISHED[options.dataset].items():
        print(f"\nPublished, {dataset}:")
        for name, values in published.items():
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
