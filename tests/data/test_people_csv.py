from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from halfmask.data.people_csv import read_people_csv
from halfmask.errors import HalfmaskError


def table(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "people.csv"
    path.write_text(text, encoding)
    return path


@pytest.mark.parametrize("divider, encoding", [(",", "utf-8"), (";", "utf-8-sig"), ("\t", "utf-8")])
def test_a_row_is_a_person(tmp_path, divider, encoding) -> None:
    text = "image,split,subject,box_x,box_y,box_width,box_height,head_x,head_y,head_width,head_height,"
    text += "right_knee_x,right_knee_y,right_knee_v,nose_x,nose_y\n"
    text += "a.jpg,private,x,1,2,30,40,5,6,7,8,12.5,20,1,,\nb.jpg,test,y,1,2,30,40,,,,,,,,9,10\n"
    found = read_people_csv(table(tmp_path, text.replace(",", divider), encoding))
    (one,), (other,) = found.parts["private"].people, found.parts["test"].people
    assert found.skeleton.names == ("right_knee", "nose")
    assert one.box == (1, 2, 30, 40) and one.head_box == (5, 6, 12, 14) and (one.subject_name, other.subject_name) == ("x", "y")
    assert one.joints.tolist() == [[12.5, 20, 1], [0, 0, 0]] and other.joints.tolist() == [[0, 0, 0], [9, 10, 2]]
    assert other.head_box is None


def test_without_split_or_box(tmp_path) -> None:
    found = read_people_csv(table(tmp_path, "image,l_hip_x,l_hip_y,r_hip_x,r_hip_y\na.jpg,10,20,30,60\n"))
    (one,) = found.parts["all"].people
    assert one.box == (10, 20, 20, 40) and one.subject is None
    np.testing.assert_array_equal(one.joints[:, 2], [2, 2])


def test_everything_wrong_is_told_at_once_and_names_nobody(tmp_path) -> None:
    header = "image,split,box_x,box_y,box_width,box_height,l_hip_x,l_hip_y,l_hip_v\n"
    rows = "jane.jpg,train,1,2,0,4,much,5,2\n,private,1,2,3,4,1,2,7\nc.jpg,private,1,2,3,4,,,\n"
    with pytest.raises(HalfmaskError) as caught:
        read_people_csv(table(tmp_path, header + rows))
    message = str(caught.value)
    assert "3 of 3 rows cannot be used" in message and "jane" not in message and "much" not in message
    for words in (
        "'split' is another word",
        "are not four numbers",
        "'l_hip_x' or 'l_hip_y' is no number",
        "no 'image'",
        "no joint is labelled",
    ):
        assert words in message
    assert any("jane.jpg" in line for line in caught.value.details)


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "no column 'image'"),
        ("image,l_hip_x,l_hip_y\n", "a header and no rows"),
        ("image,hipp_x,hipp_y\na.jpg,1,2\n", "unknown joint in the header of .*: did you mean"),
        ("image,l_hip_x\na.jpg,1\n", "no 'l_hip_y'"),
        ("image,box_x\na.jpg,1\n", "no joint among its columns"),
        ("image,image\na,b\n", "two columns 'image'"),
        ("image,l_hip_x,l_hip_y\na.jpg,3,4\n", "the box has no area"),
        ("image,l_hip_x,l_hip_y,r_hip_x,r_hip_y\n../a.jpg,3,4,5,6\n", "outside the dataset folder"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, message) -> None:
    with pytest.raises(HalfmaskError, match=message):
        read_people_csv(table(tmp_path, text))
    with pytest.raises(HalfmaskError, match="cannot be read"):
        read_people_csv(tmp_path / "none.csv")
    (tmp_path / "people.csv").write_bytes(b"image,\xff\n")
    with pytest.raises(HalfmaskError, match="no text in UTF-8"):
        read_people_csv(tmp_path / "people.csv")
