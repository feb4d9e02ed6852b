from halfmask.metrics.names import headline, printed


def test_each_way_of_scoring_has_its_two_numbers() -> None:
    assert headline(["pckh@0.5", "pckh@0.1", "pckh@0.5/head"]) == ("pckh@0.5", "pckh@0.1")
    assert headline(["pck@0.2/knee", "pck@0.2", "pck@0.5"]) == ("pck@0.2", "pck@0.5")
    assert headline(["ap", "ap50", "ar"]) == ("ap", "ar")
    assert headline([]) == ("pckh@0.5", "pckh@0.1")


def test_names_as_printed() -> None:
    assert [printed(name) for name in ("pckh@0.5", "pck@0.2", "ap", "ar-m", "method")] == ["PCKh@0.5", "PCK@0.2", "AP", "AR-M", "method"]
