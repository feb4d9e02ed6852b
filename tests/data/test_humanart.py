"""Human-Art: COCO's form, and scenes."""

from __future__ import annotations

from halfmask.data.coco import detect_coco
from halfmask.data.humanart import detect_humanart, read_humanart, scene_of


def test_human_art_has_scenes_and_finds_images_wherever_they_lie(coco_folder, annotation, photo) -> None:
    folder = coco_folder([annotation(1, 11, keypoints_21=[0] * 63)])
    path = folder / "annotations/person_keypoints_train2017.json"
    name = "HumanArt/images/real_human/dance/000000000011.jpg"
    path.write_text(path.read_text().replace("000000000011.jpg", name))
    photo(folder / "real_human/dance/000000000011.jpg")
    assert detect_humanart(folder)
    (one,) = read_humanart(folder).parts["train"].people
    assert one.scene == "real_human/dance" == scene_of(name) and one.path == folder / "real_human/dance/000000000011.jpg"


def test_plain_coco_is_not_human_art(coco_folder) -> None:
    folder = coco_folder()
    assert detect_coco(folder) and not detect_humanart(folder)


def test_the_real_sample(shared_data) -> None:
    folder = shared_data("format_samples/humanart")
    people = read_humanart(folder).parts["test"].people
    assert detect_humanart(folder) and len(people) == 4 and all(one.path.is_file() for one in people)
    assert {one.scene for one in people} == {"2D_virtual_human/digital_art", "3D_virtual_human/garage_kits", "real_human/acrobatics"}
