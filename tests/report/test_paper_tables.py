from __future__ import annotations

from rich.console import Console

from halfmask.report.paper_tables import paper_table
from halfmask.training.grids import Block, Grid, load_grid


def row(method: str, clip: float | None, epsilon: float | None, **metrics: float) -> dict:
    return {"method": method, "clip_norm": clip, "epsilon": epsilon, "seed": 0, "delta": 1e-5} | metrics


def test_ours_above_theirs_in_the_order_of_the_paper() -> None:
    scores = {"pckh@0.5": 50.0, "pckh@0.1": 5.0, "pckh@0.5/head": 61.234}
    results = {
        "Finetuning from scratch": [row("feature-projective", 0.1, 0.8, **scores)],
        "Finetuning": [
            row("feature-projective", 0.1, 0.2, **scores),
            row("feature-projective", 0.01, 0.8, **scores),
            row("feature-projective", 0.01, 0.8, **scores | {"pckh@0.5": 60.0}),
            row("feature-projective", 0.3, 0.8, **scores),
        ],
    }
    table = paper_table(load_grid("pose/paper/table6"), "", results)
    assert table.title == "Table 6: MPII Results: Feature Projective DP"
    assert [(line.block, line.clip_norm, line.epsilon) for line in table.lines] == [
        ("Finetuning", 0.3, 0.8),
        ("Finetuning", 0.01, 0.8),
        ("Finetuning", 0.1, 0.2),
        ("Finetuning from scratch", 0.1, 0.8),
    ]
    strange, twice, *_, last = table.lines
    assert strange.theirs == {}, "a cell that the paper does not have"
    assert twice.ours["mean"] == [50.0, 60.0] and twice.theirs["MPII"]["mean"] == "81.91"
    assert last.theirs["MPII"]["head"] == "94.03" and "wrist" not in last.ours
    page = table.to_markdown()
    assert "| feature-projective C=0.01 ε=0.8 | 61.23±0.00 | – |" in page and "55.00±7.07" in page
    assert "| *theirs, MPII* | *94.27* | *92.63* |" in page and "arXiv:2504.10190" in page
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table.to_rich())
    assert "theirs, MPII" in console.export_text()
    body = table.to_json()
    assert body["rows"][1]["published"]["MPII"]["mean@0.1"] == 19.22 and body["rows"][1]["ours"]["mean"]["mean"] == 55.0


def test_a_paper_with_several_datasets_and_one_clip_norm() -> None:
    results = {"real": [row("dpsgd", 1.0, 0.5, accuracy=40.0)], "anonymised": [row("masked", 1.0, 0.5, accuracy=30.0)]}
    table = paper_table(load_grid("action/paper/table1"), "", results)
    real, anonymised = table.lines
    assert real.theirs == {"NTU RGB+D": {"accuracy": "15.9"}, "Toyota Smarthome": {"mean_class_accuracy": "8.0"}}
    assert anonymised.theirs["NTU RGB+D"] == {"accuracy": "35.5"} and real.ours == {"accuracy": [40.0]}


def test_a_table_of_no_paper() -> None:
    grid = Grid((Block("top", ("dpsgd",)),))
    table = paper_table(grid, "mine", {"top": [row("dpsgd", 1.0, 0.5, **{"pckh@0.5": 40.0, "pckh@0.5/head": 3.0})]})
    assert table.title == "mine" and table.columns == ("pckh@0.5",) and table.source == "" and table.lines[0].ours == {"pckh@0.5": [40.0]}
