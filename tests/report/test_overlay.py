import cv2
import numpy as np
import pytest

from halfmask.data.images import read_image
from halfmask.errors import HalfmaskError
from halfmask.report.overlay import LEFT, RIGHT, TRUNK, contact_sheet, draw_skeleton, save_png

GREY = np.full((200, 160, 3), 128, dtype=np.uint8)


def standing():
    """A person facing the camera: their right is on the left of the picture."""
    return np.array(
        [
            [60, 180],
            [60, 140],
            [64, 100],
            [96, 100],
            [100, 140],
            [100, 180],
            [80, 100],
            [80, 50],
            [80, 40],
            [80, 15],
            [20, 100],
            [35, 75],
            [55, 52],
            [105, 52],
            [125, 75],
            [140, 100],
        ],
        dtype=np.float64,
    )


def pixel(picture, x, y):
    return tuple(int(v) for v in picture[y, x])


def photo(height=40, width=30):
    small = np.random.default_rng(0).integers(0, 255, (5, 5, 3), dtype=np.uint8)
    return cv2.resize(small, (width, height))


def test_limbs_have_the_colour_of_their_side_and_the_input_is_untouched():
    before = GREY.copy()
    picture = draw_skeleton(GREY, standing())
    assert (before == GREY).all()
    assert picture.shape == GREY.shape
    assert pixel(picture, 60, 160) == RIGHT
    assert pixel(picture, 100, 160) == LEFT
    assert pixel(picture, 80, 75) == TRUNK


def test_limbs_are_outlined_so_that_they_read_on_their_own_colour():
    picture = draw_skeleton(np.full_like(GREY, RIGHT), standing())
    across = picture[160, 50:71].max(axis=1)
    assert across[:10].min() < 110 and across[11:].min() < 110, "dark on both sides of the limb"
    assert pixel(picture, 60, 160) == RIGHT


def test_unlabelled_and_non_finite_joints_take_their_limbs_away():
    labelled = np.ones(16, dtype=bool)
    labelled[0] = False
    joints = standing()
    joints[5] = np.nan
    picture = draw_skeleton(GREY, joints, labelled)
    assert pixel(picture, 60, 165) == pixel(picture, 100, 165) == (128, 128, 128)
    assert pixel(picture, 62, 120) == RIGHT
    assert pixel(picture, 98, 120) == LEFT


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_non_finite_joint_is_drawn_like_one_without_label(bad):
    labelled = np.ones(16, dtype=bool)
    labelled[10] = False
    joints = standing()
    joints[10, 0] = bad
    assert (draw_skeleton(GREY, joints) == draw_skeleton(GREY, standing(), labelled)).all()


def test_no_joint_labelled_leaves_the_image_alone():
    assert (draw_skeleton(GREY, standing(), np.zeros(16, dtype=bool)) == GREY).all()


def test_scale_enlarges_picture_and_pose_together():
    picture = draw_skeleton(GREY, standing(), scale=3)
    assert picture.shape == (600, 480, 3)
    assert pixel(picture, 60 * 3 + 1, 160 * 3 + 1) == RIGHT


def test_joints_far_outside_do_not_break_the_drawing():
    joints = standing()
    joints[0] = (1e30, -1e30)
    joints[15] = (np.inf, 0)
    assert draw_skeleton(GREY, joints).shape == GREY.shape


def test_wrong_joints_images_and_scales_are_refused():
    with pytest.raises(HalfmaskError, match=r"shape \(17, 2\); expected \(16, 2\)"):
        draw_skeleton(GREY, np.zeros((17, 2)))
    with pytest.raises(HalfmaskError, match="type float32"):
        draw_skeleton(GREY.astype(np.float32), standing())
    with pytest.raises(HalfmaskError, match="scale of a picture is 0"):
        draw_skeleton(GREY, standing(), scale=0)


def test_contact_sheet_holds_every_picture_and_the_titles_outside_them():
    shades = [[10, 60, 110], [160, 210, 240]]
    rows = [[np.full((90, 100, 3), shade, np.uint8) for shade in row] for row in shades]
    sheet = contact_sheet(rows, ["first person", "second person"], ["truth", "dpsgd", "public-only"])
    for shade in (10, 60, 110, 160, 210, 240):
        assert (sheet == shade).all(axis=2).sum() >= 90 * 100
    first_row, first_column = np.argwhere((sheet == 10).all(axis=2)).min(axis=0)
    assert sheet[:first_row, first_column:].min() < 100, "column titles stand above the pictures"
    assert sheet[first_row:, :first_column].min() < 100, "row titles stand left of the pictures"


def test_contact_sheet_never_cuts_a_title():
    rows = [[np.full((20, 16, 3), 200, np.uint8)] * 2]
    sheet = contact_sheet(rows, ["a rather long row title"], ["feature-projective", "incomprehensibilities"])
    border = np.concatenate([sheet[0], sheet[-1], sheet[:, 0], sheet[:, -1]])
    assert (border == 255).all()
    dark_columns = (sheet < 100).all(axis=2).any(axis=0)
    assert dark_columns[-60:].any()


def test_contact_sheet_takes_pictures_of_different_sizes():
    rows = [[np.full((30, 60, 3), 50, np.uint8), np.full((80, 20, 3), 90, np.uint8)]]
    sheet = contact_sheet(rows, [""], ["", ""])
    assert (sheet == 50).all(axis=2).sum() == 30 * 60
    assert (sheet == 90).all(axis=2).sum() == 80 * 20


@pytest.mark.parametrize(
    ("rows", "row_titles", "column_titles", "words"),
    [
        ([], [], ["a"], "0 rows"),
        ([[GREY]], [], ["a"], "1 rows and 0 row titles"),
        ([[GREY, GREY], [GREY]], ["x", "y"], ["a", "b"], "row 1 of a contact sheet has 1 pictures"),
        ([[GREY[:, :, 0]]], ["x"], ["a"], "picture in row 0"),
    ],
)
def test_contact_sheet_refuses_a_grid_with_holes(rows, row_titles, column_titles, words):
    with pytest.raises(HalfmaskError, match=words):
        contact_sheet(rows, row_titles, column_titles)


def test_saved_picture_comes_back_the_same_with_red_still_red(tmp_path):
    picture = photo()
    picture[:5] = (255, 0, 0)
    save_png(tmp_path / "new" / "folder" / "é.png", picture)
    assert (read_image(tmp_path / "new" / "folder" / "é.png") == picture).all()
