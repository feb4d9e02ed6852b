"""The tables of the action task: `python -m benchmarks.action figures OUT`, or `weizmann` or `arid` with `--set data.name=FOLDER`.

Runs what is not there yet and prints the table of what is: see `benchmarks.rows`. `--set data.anonymised=true` for clips in which avatars
took the place of people (tests stay real), `--set strategy=top` for the head alone.
"""

from __future__ import annotations

from benchmarks.rows import Row, chosen, make, options_for, show

METRICS = ("accuracy", "mean_class_accuracy")
EPSILONS = (0.5, 1.0, 0.1, 0.25, 5.0)
CLEARED = "view.options={edges: cleared}"


# Steps that nobody counts, on smaller batches.
OPEN = ("batch=64", "epochs=10")


def seeds(epsilon: float) -> int:
    return 3 if epsilon in (0.5, 1.0) else 1


def weight(epsilon: float, public: bool = True) -> str:
    # As in the recipe: steps are the shorter the more noise there is, and shorter yet where public ones have led somewhere already.
    return f"private.weight={min(1.0, (0.5 if public else 1.0) * epsilon)}"


ROWS = [
    Row("public-only", "public-only"),
    *(Row("dpsgd", "dpsgd", epsilon, seeds(epsilon), (weight(epsilon, public=False),)) for epsilon in EPSILONS),
    *(Row("masked", "masked", epsilon, seeds(epsilon), (weight(epsilon),)) for epsilon in EPSILONS),
    # The noised half is shown the whole clip, not the protected tokens alone.
    *(Row("feature", "feature", epsilon, seeds(epsilon), (weight(epsilon),)) for epsilon in EPSILONS),
    # Tokens at the border are public too, with the room cleared out of them.
    Row("cleared edges, public-only", "public-only", settings=(CLEARED,)),
    *(Row("cleared edges, masked", "masked", epsilon, seeds(epsilon), (CLEARED, weight(epsilon))) for epsilon in EPSILONS),
    # Last: a run without privacy ends the account of these people.
    Row("non-private", "non-private", settings=OPEN),
]


# Three of the nine people of Weizmann are left out in turn; the groups of ARID are divided once.
PEOPLE = tuple(f"data.splits.test={person}" for person in ("daria", "denis", "eli"))


def real_rows(folds: tuple[str, ...]) -> list[Row]:
    # The largest ε that can be asked for stands for no noise to speak of.
    found = [Row("public-only", "public-only", folds=folds)]
    for method in ("dpsgd", "masked", "feature"):
        found += [Row(method, method, epsilon, folds=folds) for epsilon in (1.0, 5.0, 200.0)]
    return [*found, Row("non-private", "non-private", settings=("batch=32", "epochs=20"), folds=folds)]


def main() -> None:
    options = options_for(__doc__, ("figures", "weizmann", "arid")).parse_args()
    known = {"figures": ROWS, "weizmann": real_rows(PEOPLE), "arid": real_rows(())}
    rows = chosen(known[options.dataset], options)
    make(rows, f"action/{options.dataset}", options)
    show(options.out, rows, METRICS)


if __name__ == "__main__":
    main()
