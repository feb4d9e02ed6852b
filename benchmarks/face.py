"""The tables of the face task: `python -m benchmarks.face figures OUT` or `python -m benchmarks.face ytf68 OUT --weights START`.

Runs what is not there yet and prints the table of what is: see `benchmarks.rows`.
"""

from __future__ import annotations

from benchmarks.rows import Row, chosen, make, options_for, show

METRICS = ("detection_accuracy", "detection_ap", "landmark_error", "visibility_mse", "pose_error", "attribute_accuracy")

# Views first, then both halves: what is public of these people teaches without noise.
FEATURE = ("public.first=400", "public.steps=4")
# Few steps in many whitened coordinates of public people's gradients.
PROJECTED = (
    "subspace.kind=layers",
    "subspace.dim=3000",
    "subspace.project_first=true",
    "subspace.whiten=true",
    "private.optimiser=sgd",
    "private.momentum=0",
    "private.learning_rate=0.03",
    "clip_norm=1",
    "epochs=6",
)
SUBJECTS = ("unit=subject", "batch=64", "epochs=10", "records_per_unit=24")
# Steps that cost nothing, or that nobody counts, on smaller batches and at a rate that suits those.
OPEN = ("batch=64", "optimiser.learning_rate=0.0003")
ROWS = [
    Row("initial weights", "public-only", seeds=1, settings=("epochs=0.001", "optimiser.learning_rate=1.0e-9")),
    Row("public-only", "public-only", settings=(*OPEN, "epochs=4.5")),
    *(Row("dpsgd", "dpsgd", epsilon) for epsilon in (5.0, 0.7, 10.0)),
    *(Row("feature", "feature", epsilon, settings=FEATURE) for epsilon in (5.0, 0.7, 10.0)),
    Row("projected", "projected", settings=PROJECTED),
    Row("dpsgd, equal weights", "dpsgd", settings=("model.weighting=equal",)),
    Row("dpsgd, clipped by task", "dpsgd", seeds=1, settings=("model.clip=by-task",)),
    Row("dpsgd, subjects", "dpsgd", settings=SUBJECTS),
    # Last: a run without privacy ends the account of these people.
    Row("non-private", "non-private", settings=(*OPEN, "epochs=10")),
]


def main() -> None:
    parser = options_for(__doc__, ("figures", "ytf68"))
    parser.add_argument("--weights", help="what face/ytf68-pretrain made, for ytf68")
    options = parser.parse_args()
    if options.weights:
        options.others.append(f"model.weights={options.weights}")
    rows = chosen(ROWS, options)
    make(rows, f"face/{options.dataset}", options)
    show(options.out, rows, METRICS)


if __name__ == "__main__":
    main()
