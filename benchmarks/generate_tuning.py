"""How the settings of the recipes of `generate` were chosen: `python -m benchmarks.generate_tuning OUT [--only NAME;…]`.

On another drawn world (`data.seed=1`) than the one that results are quoted from, at ε = 1 and with one seed: the published algorithm, what
may be put in place of its parts, and released means.
"""

from __future__ import annotations

from benchmarks.rows import Row, chosen, make, options_for, show

METRICS = ("frechet_distance", "pose_kept", "generated_precision", "generated_recall")
WORLD = ("data.seed=1",)
# The published algorithm at the CPU size: pairs, weights cut, five steps of the critic for one of the generator.
PUBLISHED = (
    "model.critic=network",
    "model.generator_part=whole",
    "model.anchor=0",
    "model.generator_steps=1",
    "model.clip=pair",
    "model.bound=weights",
    "model.limit=0.01",
    "model.critic_steps=5",
    "model.average=0",
)
# The warm start as it is.
STILL = ("model.critic=network", "model.generator_rate=0", "model.average=0", "model.anchor=0", "batch=200", "epochs=0.1")
MEANS = ("model.critic=means", "batch=2000", "epochs=1", "model.average=0")


def rows() -> list[Row]:
    """By name: what is set besides the recipe."""
    found = [Row("start", "public-only", seeds=1, settings=(*WORLD, *STILL))]
    choices = ((200, 1e-3, 0), (200, 1e-3, 0.3), (200, 1e-3, 3), (200, 3e-4, 0.3), (400, 1e-3, 0.3), (200, 3e-3, 0.3))
    for steps, rate, anchor in choices:
        shape = (*WORLD, *MEANS, f"model.generator_steps={steps}", f"model.generator_rate={rate}", f"model.anchor={anchor}")
        found.append(Row(f"means {steps} {rate:g} {anchor:g}", "dpsgd", 1.0, 1, shape))
    for steps, rate, anchor in ((200, 1e-3, 0), (200, 1e-3, 0.3), (400, 1e-3, 0), (200, 2e-3, 0)):
        shape = (*WORLD, *MEANS, f"model.generator_steps={steps}", f"model.generator_rate={rate}", f"model.anchor={anchor}")
        found.append(Row(f"appearance {steps} {rate:g} {anchor:g}", "dpsgd", 1.0, 1, (*shape, "model.generator_part=appearance")))
    tenth = (*WORLD, "epochs=20", "batch=200")
    for rate in (1e-4, 1e-3):
        shape = (*tenth, *PUBLISHED, f"optimiser.learning_rate={rate}", f"model.generator_rate={rate}")
        found.append(Row(f"published {rate:g}", "dpsgd", 1.0, 1, shape))
    for rate in (1e-5, 1e-4, 1e-3):
        slow = (*tenth, f"optimiser.learning_rate={rate}", f"model.generator_rate={rate / 10}")
        for bound in ("spectral", "penalty", "weights"):
            shape = (*slow, f"model.bound={bound}", f"model.limit={0.05 if bound == 'weights' else 1.0}", "model.anchor=0.05")
            found += [Row(f"real {bound} {rate:g} {steps}", "dpsgd", 1.0, 1, (*shape, f"model.critic_steps={steps}")) for steps in (1, 3)]
    found.append(Row("real fresh", "dpsgd", 1.0, 1, (*tenth, "model.bound=spectral", "model.limit=1", "model.fresh_critic=true")))
    return found


def main() -> None:
    options = options_for(__doc__).parse_args()
    some = chosen(rows(), options)
    make(some, "generate/critic", options)
    show(options.out, some, METRICS)


if __name__ == "__main__":
    main()
