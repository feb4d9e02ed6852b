"""The tables of the action task: `python -m benchmarks.action figures OUT`.

Runs what is not there yet and prints the table of what is: see `benchmarks.rows`. `--set data.anonymised=true` for clips in which avatars
took the place of people (tests stay real), `--set strategy=top` for the head alone.
"""

from __future__ import annotations

from benchmarks.rows import Row, chosen, make, options_for, show

METRICS = ("accuracy", "mean_class_accuracy")
EPSILONS = (0.5, 1.0, 0.1, 0.25, 5.0)
CLEARED = "view.options={edges: cleared}"


def seeds(epsilon: float) -> int:
    return 3 if epsilon in (0.5, 1.0) else 1


ROWS = [
    Row("initial weights", "public-only", seeds=1, settings=("epochs=0.001", "optimiser.learning_rate=1.0e-9")),
    Row("public-only", "public-only"),
    Row("public-only, edges cleared", "public-only", settings=(CLEARED,)),
    *(Row("dpsgd", "dpsgd", epsilon, seeds(epsilon)) for epsilon in EPSILONS),
    *(Row("masked", "masked", epsilon, seeds(epsilon)) for epsilon in EPSILONS),
    *(Row("masked, edges cleared", "masked", epsilon, seeds(epsilon), (CLEARED,)) for epsilon in EPSILONS),
    *(Row("feature, edges cleared", "feature", epsilon, seeds(epsilon), (CLEARED,)) for epsilon in EPSILONS),
    # Last: a run without privacy ends the account of these people.
    Row("non-private", "non-private"),
]


def main() -> None:
    options = options_for(__doc__, ("figures",)).parse_args()
    rows = chosen(ROWS, options)
    make(rows, f"action/{options.dataset}", options)
    show(options.out, rows, METRICS)


if __name__ == "__main__":
    main()
