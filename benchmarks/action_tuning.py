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
    # Public steps first, then private ones beside few or none; and private ones the shorter the more noise there is.
    few = (*WORLD, "strategy=top", "clip_norm=10", "optimiser.learning_rate=0.03", "batch=1000", "epochs=20", "public.first=300")
    for scale in (0.5, 1, 2):
        for epsilon in (0.1, 0.25, 0.5):
            found.append(Row(f"dpsgd weight {scale:g}", "dpsgd", epsilon, 1, (*few, f"private.weight={min(1.0, scale * epsilon)}")))
    found += [Row("dpsgd weight all", "dpsgd", epsilon, 1, few) for epsilon in (0.1, 0.25, 0.5)]
    # Only tokens whose whole patch is public are: few, so that the noised half has more to teach.
    strict = (*few, "view.options={edges: private}")
    found.append(Row("strict public", "public-only", seeds=1, settings=strict))
    for share in (0, 0.05, 0.2):
        for scale in (0.5, 1, 2):
            shape = (*strict, f"public.weight={share}")
            for epsilon in (0.1, 0.25, 0.5, 1.0):
                found.append(Row(f"strict masked {share:g} {scale:g}", "masked", epsilon, 1, (*shape, f"private.weight={scale * epsilon}")))
    # The part that the paper trains: fewer steps, as each takes longer.
    part = (*WORLD, "strategy=finetune", "clip_norm=10", "batch=1000", "epochs=6", "public.first=60")
    for rate in (0.01, 0.03, 0.1):
        shape = (*part, f"optimiser.learning_rate={rate}")
        found.append(Row(f"part public {rate:g}", "public-only", seeds=1, settings=shape))
        for method in ("dpsgd", "masked"):
            found += [Row(f"part {method} {rate:g}", method, 0.5, 1, (*shape, f"private.weight={share}")) for share in (0.5,)]
    for method in ("masked", "feature"):
        for share in (0, 0.05, 0.2, 1):
            found += [Row(f"{method} first {share:g}", method, epsilon, 1, (*few, f"public.weight={share}")) for epsilon in (1.0, 0.25)]
        for scale in (0.5, 1, 2):
            for epsilon in (0.1, 0.25, 0.5):
                found.append(Row(f"{method} weight {scale:g}", method, epsilon, 1, (*few, f"private.weight={min(1.0, scale * epsilon)}")))
    return found


def main() -> None:
    options = options_for(__doc__).parse_args()
    some = chosen(rows(), options)
    make(some, "action/figures", options)
    show(options.out, some, METRICS)


if __name__ == "__main__":
    main()
