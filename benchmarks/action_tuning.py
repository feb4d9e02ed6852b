"""How the settings of the action recipes were chosen: `python -m benchmarks.action_tuning OUT [--only NAME;…]`.

On another drawn world (`data.seed=1`) than the one that results are quoted from, so that nobody who is judged there was looked at here.
"""

from __future__ import annotations

from benchmarks.rows import Row, chosen, make, options_for, show

METRICS = ("accuracy", "mean_class_accuracy")
WORLD = ("data.seed=1",)


def rows() -> list[Row]:
    """By name: what is set besides the recipe."""
    found = [Row("start top", "public-only", seeds=1, settings=(*WORLD, "strategy=top", "epochs=0.001", "optimiser.learning_rate=1.0e-9"))]
    for strategy in ("top", "finetune"):
        way = (*WORLD, f"strategy={strategy}")
        for rate in (0.003, 0.01, 0.03, 0.1):
            sgd = (*way, f"optimiser.learning_rate={rate}")
            found.append(Row(f"open {strategy} {rate:g}", "non-private", seeds=1, settings=(*sgd, "batch=64", "epochs=10")))
            found.append(Row(f"public {strategy} {rate:g}", "public-only", seeds=1, settings=(*sgd, "batch=100", "epochs=10")))
        for rate in (0.01, 0.03, 0.1, 0.3):
            for clip in (1, 10):
                for batch, epochs in ((500, 6), (1000, 20)):
                    shape = (*way, f"optimiser.learning_rate={rate / clip}", f"clip_norm={clip}", f"batch={batch}", f"epochs={epochs}")
                    for method in ("dpsgd", "masked", "feature"):
                        name = f"{method} {strategy} {rate:g}/C C={clip} {epochs}x{batch}"
                        found.append(Row(name, method, 1.0, 1, shape))
    return found


def main() -> None:
    options = options_for(__doc__).parse_args()
    some = chosen(rows(), options)
    make(some, "action/figures", options)
    show(options.out, some, METRICS)


if __name__ == "__main__":
    main()
