"""Published figures: as printed, with their source, and never without the word that they are theirs."""

from __future__ import annotations

from halfmask.gradients.mechanism import METHODS
from halfmask.report.published import published_for, rows, sources

POSE = ("pckh@0.5", "pckh@0.1")


def value(file: str, column: str, **wanted: str) -> list[str]:
    return [row[column] for row in rows(file) if all(row[name] == text for name, text in wanted.items())]


def test_tables_are_whole_and_as_printed() -> None:
    assert len(rows("pose_mpii.csv")) == 6 + 4 * 36 and len(rows("pose_humanart.csv")) == 2 + 16 + 32 + 16 + 20
    finetuned = {"strategy": "finetune", "clip_norm": "0.01"}
    assert value("pose_mpii.csv", "mean", table="6", epsilon="0.2", **finetuned) == ["82.50"]
    assert value("pose_mpii.csv", "mean", table="3", epsilon="0.2", **finetuned) == ["63.85"]
    assert value("pose_mpii.csv", "mean", method="public-only", strategy="finetune") == ["83.61"]
    assert value("pose_humanart.csv", "ap", table="10", epsilon="0.8", **finetuned) == ["51.6"]
    assert value("action.csv", "accuracy", dataset="NTU RGB+D", data="real", method="masked", epsilon="0.5") == ["60.8"]
    assert value("action.csv", "mean_class_accuracy", dataset="Toyota Smarthome", data="anonymised", method="masked", epsilon="0.25") == [
        "9.1"
    ]


def test_every_file_has_a_source_a_remark_and_our_words() -> None:
    for source in sources():
        assert "Table" in source["source"] and "Their ε is as printed" in source["remark"]
        for row in rows(source["file"]):
            assert row["method"] in METHODS and row["strategy"] in ("", "finetune", "full", "scratch")
            assert all(not row[column] or 0 <= float(row[column]) <= 100 for column in source["metrics"].values())


def test_layers_are_of_the_task_and_the_metrics_at_hand() -> None:
    titles = [layer["title"] for layer in published_for({"pose"}, POSE)]
    assert len(titles) == 9 and all(title.startswith("MPII") for title in titles)
    assert {layer["title"].partition(",")[0] for layer in published_for({"pose"}, ("ap",))} == {"Human-Art"}
    assert published_for({"face"}, POSE) == [] and published_for({"pose"}, ("loss",)) == []
    (layer,) = [one for one in published_for({"action"}, ("accuracy",)) if one["title"].startswith("NTU RGB+D, anonymised")]
    assert {point["method"] for point in layer["points"] if point["epsilon"] is None} == {"non-private"}
    assert [point["values"]["accuracy"] for point in layer["points"] if point["epsilon"] is None] == [68.3]
