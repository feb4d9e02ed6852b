"""Every dataset of videos in the layout of its release: what a clip shows, whose it is, how it is divided, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from halfmask.data.clips import ClipSet
from halfmask.data.files import BadAnnotations
from halfmask.data.video_sets import READERS, VIDEO_FORMATS, detect_video_format, read_video_set
from halfmask.data.video_sets.airtlab import read_airtlab
from halfmask.data.video_sets.arid import read_arid
from halfmask.data.video_sets.hmdb51 import read_hmdb51
from halfmask.data.video_sets.ntu import ACTIONS, TRAINING_SUBJECTS, action_name
from halfmask.data.video_sets.ucf101 import read_ucf101
from halfmask.errors import HalfmaskError

NAME = "jane-roe"
Video = Callable[..., Path]


def lines(path: Path, *rows: str, end: str = "\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{row}{end}" for row in rows).encode())


def touched(*paths: Path) -> None:
    """A reader opens no video: any file will do."""
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def ucf101(folder: Path) -> Path:
    every = product(("Archery", "Basketball"), (1, 8), (1, 2))
    clips = [f"{label}/v_{label}_g{group:02d}_c{clip:02d}.avi" for label, group, clip in every]
    touched(*(folder / "UCF-101" / clip for clip in clips))
    lists = folder / "ucfTrainTestlist"
    # The official class numbers are not in the order of the names here, so that the list is seen to be followed.
    lines(lists / "classInd.txt", "1 Basketball", "2 Archery", end="\r\n")
    lines(lists / "trainlist01.txt", *(f"{clip} {2 - ('Basket' in clip)}" for clip in clips if "g08" in clip), end="\r\n")
    lines(lists / "testlist01.txt", *(clip for clip in clips if "g01" in clip), end="\r\n")
    lines(lists / "trainlist02.txt", *(f"{clip} 1" for clip in clips if "g01" in clip))
    lines(lists / "testlist02.txt", *(clip for clip in clips if "g08" in clip))
    return folder


HMDB = {
    "brush_hair": (
        "April_09_brush_hair_u_nm_np1_ba_goo_0.avi",
        "April_09_brush_hair_u_nm_np1_ba_goo_1.avi",
        "Hair_brush_hair_h_cm_np1_le_med_0.avi",
    ),
    "wave": ("April_09_wave_u_nm_np1_fr_goo_0.avi", "#20_Rhythm_clap_u_nm_np1_fr_goo_0.avi", "wave(1)_wave_f_nm_np2_ri_bad_2.avi"),
}


def hmdb51(folder: Path) -> Path:
    for label, names in HMDB.items():
        touched(*(folder / label / name for name in names))
        for split, flags in ((1, (1, 1, 2)), (2, (2, 2, 0))):
            rows = (f"{name} {flag} " for name, flag in zip(names, flags, strict=True))
            lines(folder / "testTrainMulti_7030_splits" / f"{label}_test_split{split}.txt", *rows)
    return folder


def ntu(folder: Path) -> Path:
    every = product((1, 2), (1, 3), (1, 2), (9, 1))
    names = [f"S001C00{camera}P00{person}R00{take}A{action:03d}" for camera, person, take, action in every]
    touched(*(folder / f"nturgbd_rgb_s{name[3]}" / f"{name}_rgb.avi" for name in names), folder / "S018C001P041R001A061_rgb.avi")
    return folder


def smarthome(folder: Path) -> Path:
    names = ("Cook.Cut_p03_r00_v02_c03", "Cook.Cut_p03_r01_v02_c04", "Walk_p03_r00_v05_c03", "Walk_p02_r00_v02_c03")
    touched(*(folder / "mp4" / f"{name}.mp4" for name in names))
    return folder


def weizmann(folder: Path) -> Path:
    touched(*(folder / action / f"{who}_{action}.avi" for action in ("walk", "wave1") for who in ("daria", "ido")))
    touched(folder / "walk" / "lena_walk1.avi", folder / "walk" / "lena_walk2.avi", folder / "wave1" / "lena_wave1.avi")
    return folder


def arid(folder: Path) -> Path:
    names = [f"{label}/{label}_{group}_{clip}.mp4" for label in ("Run", "Sit") for group in (2, 10) for clip in (1, 2)]
    touched(*(folder / "train" / name for name in names))
    lines(folder / "train.txt", *(f"{place}\t{int('Run' in name)}\t{name}" for place, name in enumerate(names)), end="\r\n")
    lines(folder / "mapping_table_t1.txt", "0\tSit", "1\tRun", end="\r\n")
    return folder


def airtlab(folder: Path) -> Path:
    root = folder / "violence-detection-dataset"
    every = product(("violent", "non-violent"), ("cam1", "cam2"), (1, 2, 10))
    touched(*(root / kind / camera / f"{number}.mp4" for kind, camera, number in every))
    (root / "violent" / "cam2" / "10.mp4").unlink()
    lines(root / "violent-action-classes.csv", "FILE; ACTION CLASSES", "1.mp4;slap", "2.mp4;slap,kick", "3.mp4;kick", "10.mp4;kick")
    lines(root / "nonviolent-action-classes.csv", "FILE; ACTION CLASSES", "1.mp4;hug", "2.mp4;hug,greet", "10.mp4;friendly punch")
    return folder


LAYOUTS = {"ucf101": ucf101, "hmdb51": hmdb51, "ntu": ntu, "smarthome": smarthome, "weizmann": weizmann, "arid": arid, "airtlab": airtlab}


def units(clips: ClipSet, unit: str) -> dict[str | None, int]:
    owners = [getattr(take, unit) for take in clips.takes]
    return {owner: owners.count(owner) for owner in sorted(set(owners), key=str)}


def sizes(clips: ClipSet) -> dict[str, int]:
    return {part: len(names) for part, names in clips.splits.items()}


def nameless(attempt: Callable[[], object], match: str) -> None:
    """Refused in numbers; who it is about reaches the data's holder alone."""
    with pytest.raises(BadAnnotations, match=match) as caught:
        attempt()
    assert NAME not in str(caught.value)
    assert any(NAME in line for line in caught.value.details)


@pytest.mark.parametrize("format", LAYOUTS)
def test_each_layout_is_known_for_what_it_is(tmp_path: Path, format: str) -> None:
    folder = LAYOUTS[format](tmp_path / "set")
    assert [one for one in LAYOUTS if READERS[one][0](folder)] == [format]
    assert detect_video_format(folder) == format
    clips = read_video_set(folder)
    assert clips.name == format and not clips.masks
    names = [take.name for take in clips.takes]
    assert len(set(names)) == len(names) and names == sorted(names)
    assert all(take.label in clips.classes and take.video for take in clips.takes)
    assert all(set(part) <= set(names) for part in clips.splits.values())
    assert all(take.read.path.is_file() for take in clips.takes)  # type: ignore[attr-defined]
    moved = folder.rename(tmp_path / "moved")
    assert [take.name for take in read_video_set(moved).takes] == names, "a clip is called the same wherever its dataset lies"


def test_what_is_in_no_format_is_told_the_formats(tmp_path: Path) -> None:
    touched(tmp_path / "holiday.mp4", tmp_path / "notes.txt")
    assert detect_video_format(tmp_path) is None and detect_video_format(tmp_path / "nowhere") is None
    with pytest.raises(HalfmaskError, match=f"no known format of videos: expected {', '.join(VIDEO_FORMATS)}"):
        read_video_set(tmp_path)
    with pytest.raises(HalfmaskError, match=r"ucf10.*ucf101"):
        read_video_set(tmp_path, "ucf10")


@pytest.mark.parametrize("format", VIDEO_FORMATS)
def test_an_empty_folder_is_refused(tmp_path: Path, format: str) -> None:
    with pytest.raises(HalfmaskError, match=r"holds no clips|is no copy of"):
        read_video_set(tmp_path, format)


def test_ucf101(tmp_path: Path) -> None:
    clips = read_ucf101(ucf101(tmp_path))
    assert clips.classes == ("Basketball", "Archery")
    assert units(clips, "video") == units(clips, "group") == {"Archery_g01": 2, "Archery_g08": 2, "Basketball_g01": 2, "Basketball_g08": 2}
    assert units(clips, "subject") == {None: 8}
    assert sizes(clips) == {"train": 4, "test": 4} and all("_g08_" in name for name in clips.splits["train"])
    assert all("_g01_" in name for name in read_ucf101(tmp_path, split=2).splits["train"])
    with pytest.raises(HalfmaskError, match=r"no trainlist03\.txt and no testlist03\.txt"):
        read_ucf101(tmp_path, split=3)
    # A clip that neither list names is there, and in neither part.
    touched(tmp_path / "UCF-101" / "Archery" / "v_Archery_g09_c01.avi")
    assert len(read_ucf101(tmp_path).takes) == 9 and sizes(read_ucf101(tmp_path)) == {"train": 4, "test": 4}


def test_ucf101_without_lists_has_no_division(tmp_path: Path) -> None:
    touched(tmp_path / "Archery" / "v_Archery_g01_c01.avi", tmp_path / "Aerobics" / "v_Aerobics_g01_c01.avi")
    clips = read_ucf101(tmp_path)
    assert clips.classes == ("Aerobics", "Archery") and not clips.splits
    lines(tmp_path / "trainlist01.txt", "Archery/v_Archery_g01_c01.avi 1")
    with pytest.raises(HalfmaskError, match=r"has no testlist01\.txt: a split needs both"):
        read_ucf101(tmp_path)


def test_ucf101_lists_that_do_not_fit_the_files(tmp_path: Path) -> None:
    folder = ucf101(tmp_path)
    lists = folder / "ucfTrainTestlist"
    train = (lists / "trainlist01.txt").read_text()
    lines(lists / "trainlist01.txt", train, f"Archery/v_{NAME}_g01_c01.avi 2")
    nameless(lambda: read_ucf101(folder), r"1 of the 5 clips that trainlist01\.txt names are not there: restore")
    lines(lists / "trainlist01.txt", train)
    lines(lists / "classInd.txt", "1 Basketball", "2 Archery", "3 Yoga")
    with pytest.raises(HalfmaskError, match=r"1 of the 3 classes .* have no clips \(Yoga\): restore"):
        read_ucf101(folder)
    lines(lists / "classInd.txt", "Basketball")
    with pytest.raises(HalfmaskError, match="'number class'"):
        read_ucf101(folder)
    lines(lists / "classInd.txt", "1 Basketball", "2 Archery")
    touched(folder / "UCF-101" / "Archery" / f"{NAME}.avi")
    copied = next((folder / "UCF-101" / "Basketball").glob("*.avi")).name
    touched(folder / "again" / "Basketball" / copied)
    nameless(lambda: read_ucf101(folder), "2 of 10 clips are not named v_CLASS.* or are there twice")


def test_hmdb51(tmp_path: Path) -> None:
    clips = read_hmdb51(hmdb51(tmp_path))
    assert clips.classes == ("brush_hair", "wave")
    # One source, whatever its clips show.
    assert units(clips, "video") == units(clips, "group") == {"#20_Rhythm_clap": 1, "April_09": 3, "Hair": 1, "wave(1)": 1}
    assert sizes(clips) == {"train": 4, "test": 2} and f"wave/{HMDB['wave'][2]}" in clips.splits["test"]
    second = read_hmdb51(tmp_path, split=2)
    assert sizes(second) == {"train": 0, "test": 4} and len(second.takes) == 6, "0 is in neither part"
    with pytest.raises(HalfmaskError, match=r"no list CLASS_test_split3\.txt for 2 of its 2 classes"):
        read_hmdb51(tmp_path, split=3)


def test_hmdb51_lists_that_do_not_fit_the_files(tmp_path: Path) -> None:
    folder = hmdb51(tmp_path)
    path = folder / "testTrainMulti_7030_splits" / "wave_test_split1.txt"
    lines(path, path.read_text(), f"{NAME}_wave_u_nm_np1_fr_goo_0.avi 2 ")
    nameless(lambda: read_hmdb51(folder), "1 of the 7 clips that its lists of split 1 names")
    lines(path, f"{NAME}.avi 7")
    with pytest.raises(HalfmaskError, match=r"lines that are not 'clip\.avi 0', 1 or 2") as caught:
        read_hmdb51(folder)
    assert NAME not in str(caught.value)
    path.unlink()
    with pytest.raises(HalfmaskError, match="for 1 of its 2 classes"):
        read_hmdb51(folder)


def test_ntu(tmp_path: Path) -> None:
    clips = read_video_set(ntu(tmp_path), "ntu")
    assert clips.classes == ("drink water", "stand up", "A061"), "in the order of the codes"
    assert units(clips, "subject") == {"P001": 8, "P003": 8, "P041": 1}
    # Two cameras see one performance.
    assert set(units(clips, "video").values()) == {1, 2} and units(clips, "video")["S001P003R002A009"] == 2
    assert sizes(clips) == {"train": 8, "test": 9} and all("P001" in name for name in clips.splits["train"])
    touched(tmp_path / "again" / "S001C001P001R001A001_rgb.avi", tmp_path / f"{NAME}.avi")
    nameless(lambda: read_video_set(tmp_path, "ntu"), "2 of 19 clips are not named .* or are there twice")


def test_ntu_names_and_training_subjects_are_the_official_ones() -> None:
    assert len(ACTIONS) == len(set(ACTIONS)) == 60
    assert (action_name("A008"), action_name("A043"), action_name("A060")) == ("sit down", "falling down", "walking apart")
    assert sorted(person for person in TRAINING_SUBJECTS if person <= 40) == [
        1, 2, 4, 5, 8, 9, 13, 14, 15, 16, 17, 18, 19, 25, 27, 28, 31, 34, 35, 38,
    ]  # fmt: skip
    assert len(TRAINING_SUBJECTS) == 53


def test_smarthome(tmp_path: Path) -> None:
    clips = read_video_set(smarthome(tmp_path), "smarthome")
    assert clips.classes == ("Cook.Cut", "Walk")
    assert units(clips, "subject") == {"p02": 1, "p03": 3}
    assert units(clips, "video") == {"p02_v02": 1, "p03_v02": 2, "p03_v05": 1}
    assert sizes(clips) == {"train": 3, "test": 1}
    copied = next((tmp_path / "mp4").glob("*.mp4")).name
    touched(tmp_path / "mp4" / f"{NAME}.mp4", tmp_path / "again" / copied)
    nameless(lambda: read_video_set(tmp_path, "smarthome"), "2 of 6 clips are not named Activity_p.* or are there twice")


def test_weizmann(tmp_path: Path) -> None:
    clips = read_video_set(weizmann(tmp_path), "weizmann")
    assert clips.classes == ("walk", "wave1") and not clips.splits
    assert units(clips, "subject") == {"daria": 2, "ido": 2, "lena": 3}
    assert units(clips, "video")["lena_walk"] == 2 and units(clips, "video")["lena_wave1"] == 1
    touched(tmp_path / "walk" / "ido_run.avi", tmp_path / "walk" / f"{NAME}.avi")
    nameless(lambda: read_video_set(tmp_path, "weizmann"), "2 of 9 clips are not named PERSON_ACTION.avi")


def test_weizmann_in_one_folder(tmp_path: Path) -> None:
    touched(tmp_path / "ira_pjump.avi", tmp_path / "ira_jump.avi")
    assert {take.name: take.label for take in read_video_set(tmp_path).takes} == {"ira_jump.avi": "jump", "ira_pjump.avi": "pjump"}


def test_arid(tmp_path: Path) -> None:
    clips = read_arid(arid(tmp_path))
    assert clips.classes == ("Sit", "Run") and not clips.splits
    assert units(clips, "video") == units(clips, "group") == {"Run_10": 2, "Run_2": 2, "Sit_10": 2, "Sit_2": 2}
    assert {take.read.gamma for take in clips.takes} == {0.4}  # type: ignore[attr-defined]
    assert {take.read.gamma for take in read_arid(tmp_path, gamma=1).takes} == {1}  # type: ignore[attr-defined]


def test_arid_with_more_lists_is_divided_by_them(tmp_path: Path) -> None:
    folder = arid(tmp_path)
    touched(folder / "test" / "Run" / "Run_1_1.mp4")
    lines(folder / "test.txt", "0\t1\tRun/Run_1_1.mp4")
    assert sizes(read_arid(folder)) == {"train": 8, "test": 1}


def test_arid_lists_that_do_not_fit_the_files(tmp_path: Path) -> None:
    folder = arid(tmp_path)
    whole = (folder / "train.txt").read_text()
    lines(folder / "train.txt", whole, f"8\t1\tRun/{NAME}_1_1.mp4")
    nameless(lambda: read_arid(folder), r"1 of the 9 clips that train\.txt names are not there")
    for wrong in (f"8\t2\tRun/{NAME}_1_1.mp4", f"8\t1\tRun/{NAME}.mp4", f"8\t1\t../Run/{NAME}_1_1.mp4", f"{NAME}_1_1.mp4"):
        lines(folder / "train.txt", whole, wrong)
        nameless(lambda: read_arid(folder), "1 of 9 lines of its lists")


def test_airtlab(tmp_path: Path) -> None:
    clips = read_airtlab(airtlab(tmp_path))
    assert clips.classes == ("non-violent", "violent") and not clips.splits
    # Both cameras show one performance; number 1 of the other kind is another.
    found = units(clips, "video")
    assert found == units(clips, "group") and found["violent/1"] == found["non-violent/1"] == 2 and found["violent/10"] == 1
    assert len(clips.takes) == 11


def test_airtlab_by_action_leaves_out_clips_of_several(tmp_path: Path) -> None:
    clips = read_video_set(airtlab(tmp_path), "airtlab-actions")
    assert clips.name == "airtlab-actions" and clips.classes == ("friendly punch", "hug", "kick", "slap")
    assert {take.video for take in clips.takes} == {"violent/1", "violent/10", "non-violent/1", "non-violent/10"}
    with pytest.raises(HalfmaskError, match="label of airtlab"):
        read_airtlab(tmp_path, "mood")
    table = tmp_path / "violence-detection-dataset" / "violent-action-classes.csv"
    lines(table, "FILE; ACTION CLASSES", "2.mp4;slap")
    with pytest.raises(BadAnnotations, match="3 of 11 clips are in no row"):
        read_airtlab(tmp_path, "action")
    lines(table, "FILE; ACTION CLASSES", "2.mp4;")
    with pytest.raises(HalfmaskError, match="rows that are not"):
        read_airtlab(tmp_path, "action")
    table.unlink()
    with pytest.raises(HalfmaskError, match=r"no violent-action-classes\.csv"):
        read_airtlab(tmp_path, "action")


@pytest.mark.parametrize(
    ("name", "clips", "classes", "videos", "subjects", "size"),
    [
        ("weizmann", 90, 10, 90, 9, (144, 180)),
        ("arid", 750, 10, 59, None, (120, 160)),
        ("airtlab", 301, 2, 158, None, (144, 256)),
    ],
)
def test_the_real_thing(
    shared_data: Callable[[str], Path], name: str, clips: int, classes: int, videos: int, subjects: int | None, size: tuple[int, int]
) -> None:
    found = read_video_set(shared_data(name))
    assert (found.name, len(found.takes), len(found.classes), len(units(found, "video"))) == (name, clips, classes, videos)
    named = set(units(found, "subject")) - {None}
    assert len(named) == (subjects or 0)
    for take in found.takes[:: len(found.takes) // 5]:
        frames = take.read().frames
        assert frames.shape[1:] == (*size, 3) and len(frames) > 10
    if name == "arid":
        assert frames.mean() > 30, "brightened"


def test_the_real_actions_of_airtlab(shared_data: Callable[[str], Path]) -> None:
    found = read_video_set(shared_data("airtlab"), "airtlab-actions")
    assert 100 < len(found.takes) < 301 and {"slap", "hug", "friendly punch"} <= set(found.classes)
