"""The table of generated pictures: `python -m benchmarks.generate OUT [--only NAME;…] [--seeds N]`.

The published algorithm at the CPU size and ours, over ε, beside the warm start alone (which costs no budget) and both without noise. What
the pictures are worth and what they give away is then measured by `halfmask audit tradeoff`.
"""

from __future__ import annotations

from benchmarks.generate_tuning import METRICS, PUBLISHED, STILL
from benchmarks.rows import Row, chosen, make, options_for, show

EPSILONS = (0.8, 1.0, 5.0, 20.0)
# As published, but for what the CPU size allows: at its rates nothing would move in so few steps.
RATES = ("batch=200", "epochs=10", "optimiser.learning_rate=1.0e-5", "model.generator_rate=1.0e-5")


def rows() -> list[Row]:
    """By name: what is set besides the recipe."""
    found = [Row("start", "public-only", settings=STILL)]
    for name, settings in (("ours", ()), ("published", (*PUBLISHED, *RATES))):
        found += [Row(name, "dpsgd", epsilon, settings=settings) for epsilon in EPSILONS]
        found.append(Row(f"{name} open", "non-private", settings=settings))
    return found


def main() -> None:
    options = options_for(__doc__).parse_args()
    some = chosen(rows(), options)
    make(some, "generate/figures", options)
    show(options.out, some, METRICS)


if __name__ == "__main__":
    main()
