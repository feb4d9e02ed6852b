"""How surely a photograph is recognised, and how rarely another one is taken for it: `python -m benchmarks.recognition --data DIR`.

`DIR` holds real pictures (see the README there); sets that are missing are left out. Two errors are measured, with the code that finds a
dataset's account: pictures that are *missed* after each change, and *false confirmations* between parts that share nobody, and between
sets. Every confirmed pair is drawn into contact sheets (`--sheets`), because whether it is false is for eyes to say. Last comes the sweep
of the thresholds over both errors that chose them.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np

from halfmask.data.export import export_figures
from halfmask.privacy.alignment import SAME, SAME_IN_A_RECURRING_SCENE, Likeness, candidates, compare, confirmed
from halfmask.privacy.sketches import Sketches, sketch

Change = Callable[[np.ndarray, np.random.Generator], np.ndarray]
FIGURES = 300
SWEEP = [
    (same, strict) for same in (0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5) for strict in (0.06, 0.08, 0.1, 0.15, 0.2, 0.3) if strict <= same
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the real sets")
    parser.add_argument("--sheets", type=Path, default=Path(tempfile.gettempdir()) / "recognition", help="where contact sheets go")
    parser.add_argument("--sample", type=int, default=150, help="pictures of each set that are changed")
    parser.add_argument(
        "--frames", type=int, default=3, help="pictures of each clip; thresholds were chosen at 3 and 8; other numbers give other pictures"
    )
    parser.add_argument("--sets", nargs="*", default=list(SETS), help="only these")
    options = parser.parse_args()
    options.sheets.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as drawn:
        export_figures(Path(drawn), {"private": FIGURES, "public": FIGURES, "test": FIGURES})
        sets = [found for name in options.sets if (found := load(name, Path(drawn) if name == "figures" else options.data, options.frames))]
        copies = measure_misses(sets, options.sample)
        strangers = measure_confirmations(sets, options.sheets)
    sweep(copies, strangers)


@dataclass
class Pictures:
    """A set: where each picture comes from, how to read it again, and its sketch."""

    name: str
    sources: list[tuple[Path, int]]
    sketches: Sketches
    frames: int

    def read(self, row: int) -> np.ndarray:
        path, frame = self.sources[row]
        return clip(path, self.frames)[frame] if path.suffix in CLIPS else cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)

    def label(self, row: int) -> str:
        path, frame = self.sources[row]
        return f"{path.parent.name}/{path.name}#{frame}" if path.suffix in CLIPS else path.name


SETS = {
    "lspet": "lspet/images/*.jpg",
    "coco_mini": "coco_mini/*/*.jpg",
    "format_samples": "format_samples/**/*.*",
    "ytf68": "ytf68/images/*.jpg",
    "market1501": "market1501/bounding_box_train/*.jpg",
    "airtlab": "airtlab/**/*.mp4",
    "weizmann": "weizmann/*/*.avi",
    "arid": "arid/train/*/*.mp4",
    "figures": "images/**/*.jpg",
}
CLIPS = (".mp4", ".avi")


def load(name: str, folder: Path, frames: int) -> Pictures | None:
    paths = [path for path in sorted(folder.glob(SETS[name])) if path.suffix in (*CLIPS, ".jpg", ".png")]
    sources, found = [], []
    start = time.process_time()
    for path in paths:
        images = clip(path, frames) if path.suffix in CLIPS else [cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)]
        for number, image in enumerate(images):
            sources.append((path, number))
            found.append(sketch(image))
    if not sources:
        return None
    print(f"{name}: {len(sources)} pictures read and sketched in {time.process_time() - start:.0f} s of processor time", flush=True)
    return Pictures(name, sources, joined(found), frames)


def clip(path: Path, count: int) -> list[np.ndarray]:
    """A few frames, as far apart as they can be."""
    video, frames = cv2.VideoCapture(str(path)), []
    while (read := video.read())[0]:
        frames.append(cv2.cvtColor(read[1], cv2.COLOR_BGR2RGB))
    return [frames[int((k + 0.5) * len(frames) / count)] for k in range(count)] if frames else []


def joined(parts: list[Sketches]) -> Sketches:
    return Sketches(*(np.concatenate([getattr(part, name) for part in parts]) for name in ("words", "places", "sizes", "thumbnails")))


# --- changes -------------------------------------------------------------------------------------------------------------------------


def stored(image: np.ndarray, suffix: str, *options: int) -> np.ndarray:
    return cv2.imdecode(cv2.imencode(suffix, image, list(options))[1], cv2.IMREAD_COLOR)


def jpeg(image: np.ndarray, quality: int) -> np.ndarray:
    return stored(image, ".jpg", cv2.IMWRITE_JPEG_QUALITY, quality)


def resized(image: np.ndarray, factor: float) -> np.ndarray:
    return cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC)


def mirrored(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(image[:, ::-1])


def cut(image: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """So much off the width and off the height, anywhere."""
    (height, width), off = image.shape[:2], [round(side * share) for side in image.shape[:2]]
    top, left = rng.integers(0, off[0] + 1), rng.integers(0, off[1] + 1)
    return np.ascontiguousarray(image[top : top + height - off[0], left : left + width - off[1]])


def light(image: np.ndarray, gain: float, around: float = 0.0) -> np.ndarray:
    return np.clip(np.round((image.astype(np.float32) - around) * gain + around), 0, 255).astype(np.uint8)


def grey(image: np.ndarray) -> np.ndarray:
    return np.repeat(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)[..., None], 3, 2)


CHANGES: dict[str, Change] = {
    **{f"JPEG {quality}": lambda image, rng, quality=quality: jpeg(image, quality) for quality in (90, 75, 50, 30)},
    "PNG": lambda image, rng: stored(image, ".png"),
    "WebP 60": lambda image, rng: stored(image, ".webp", cv2.IMWRITE_WEBP_QUALITY, 60),
    **{f"resized {factor}": lambda image, rng, factor=factor: resized(image, factor) for factor in (0.3, 0.5, 0.75, 2)},
    "mirrored": lambda image, rng: mirrored(image),
    "mirrored, 0.5, JPEG 75": lambda image, rng: jpeg(resized(mirrored(image), 0.5), 75),
    "brighter 20 %": lambda image, rng: light(image, 1.2),
    "darker 20 %": lambda image, rng: light(image, 0.8),
    # Around the picture's own mean, as image editors do: around 128, a dark room would be black.
    "contrast × 1.4": lambda image, rng: light(image, 1.4, float(image.mean())),
    "contrast × 0.6": lambda image, rng: light(image, 0.6, float(image.mean())),
    "grey": lambda image, rng: grey(image),
    **{f"cut {share:.0%}": lambda image, rng, share=share: cut(image, share, rng) for share in (0.05, 0.1, 0.15, 0.2)},
    "shifted 4 px": lambda image, rng: np.ascontiguousarray(image[4:, 4:]),
    "cut 15 %, mirrored, JPEG 75": lambda image, rng: jpeg(mirrored(cut(image, 0.15, rng)), 75),
}


# --- the two errors ------------------------------------------------------------------------------------------------------------------


@dataclass
class Compared:
    """Pairs that were compared, and how alike they are; kept for the sweep."""

    where: str
    rows: int
    pairs: np.ndarray
    likeness: Likeness


def compared(where: str, mine: Sketches, theirs: Sketches) -> Compared:
    pairs = candidates(mine.words, theirs.words)
    return Compared(where, len(mine), pairs, compare(mine, theirs, pairs))


def missed(copies: Compared, **thresholds: float) -> int:
    """Rows whose own copy is not among the confirmed ones."""
    same = copies.pairs[confirmed(copies.pairs, copies.likeness, **thresholds)]
    return copies.rows - len(np.unique(same[same[:, 0] == same[:, 1], 0]))


def measure_misses(sets: list[Pictures], sample: int) -> list[Compared]:
    """Each sample against its changed copies, all at once: what is found must be found among the others."""
    every, table = [], {}
    for pictures in sets:
        rng = np.random.default_rng(0)
        rows = np.sort(rng.permutation(len(pictures.sources))[:sample])
        images, mine = [pictures.read(row) for row in rows], pictures.sketches.take(rows)
        for name, change in CHANGES.items():
            found = compared(f"{pictures.name}, {name}", mine, joined([sketch(change(image, rng)) for image in images]))
            every.append(found)
            table[name, pictures.name] = missed(found) / found.rows
    print(f"\nMissed, of {sample} pictures each (all, where a set has fewer)\n\n| change | " + " | ".join(p.name for p in sets) + " |")
    print("|---|" + "---|" * len(sets))
    for name in CHANGES:
        print(f"| {name} | " + " | ".join(f"{table[name, pictures.name]:.1%}" for pictures in sets) + " |")
    return every


def parts(pictures: Pictures) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Splits that share nobody (or, where there are no ids, no scene), as rows of two parts."""
    names = [path.name for path, _ in pictures.sources]
    if pictures.name == "lspet":
        number = np.array([int(name[2:7]) for name in names])
        public, test = number <= 1000, number > 5500
        masks = {"public": public, "private": ~public & ~test, "test": test}
    elif pictures.name == "ytf68":
        subject = np.array([int(name[1:4]) for name in names])
        masks = {"public": subject <= 60, "private": (subject > 60) & (subject <= 230), "test": subject > 230}
    elif pictures.name == "market1501":
        identity = np.array([name[:4] for name in names])
        public = np.isin(identity, np.unique(identity)[:100])
        masks = {"public": public, "private": ~public}
    elif pictures.name == "weizmann":
        person = np.array([name.split("_")[0] for name in names])
        for one in np.unique(person):
            yield f"weizmann: {one} × the others", np.flatnonzero(person == one), np.flatnonzero(person != one)
        return
    elif pictures.name == "airtlab":
        odd = np.array([int(Path(name).stem) % 2 == 1 for name in names])
        masks = {"odd": odd, "even": ~odd}
    elif pictures.name == "arid":
        group = np.array([name.rsplit("_", 1)[0] for name in names])
        test = np.zeros(len(names), bool)
        for action in sorted({name.rsplit("_", 1)[0] for name in group}):
            groups = sorted({name for name in group if name.startswith(f"{action}_")}, key=lambda name: int(name.rsplit("_", 1)[1]))
            test |= np.isin(group, groups[-max(1, len(groups) // 5) :])
        masks = {"last fifth of groups": test, "the others": ~test}
    elif pictures.name in ("figures", "coco_mini"):
        folder = np.array([re.sub(r"\d+$", "", path.parent.name) for path, _ in pictures.sources])
        masks = {name: folder == name for name in np.unique(folder)}
    else:
        return
    for one, other in combinations(masks, 2):
        yield f"{pictures.name}: {one} × {other}", np.flatnonzero(masks[one]), np.flatnonzero(masks[other])


def measure_confirmations(sets: list[Pictures], sheets: Path) -> list[Compared]:
    """Between parts of each set, and between sets."""
    every, timed, total = [], 0.0, 0
    print(f"\nConfirmed between parts that should share nobody (sheets in {sheets})\n\n| parts | pictures | confirmed |\n|---|---|---|")
    jobs = [(where, pictures, a, pictures, b) for pictures in sets for where, a, b in parts(pictures)]
    for one, other in combinations(sets, 2):
        jobs.append((f"{one.name} × {other.name}", one, np.arange(len(one.sources)), other, np.arange(len(other.sources))))
    for where, one, a, other, b in jobs:
        start = time.perf_counter()
        found = compared(where, one.sketches.take(a), other.sketches.take(b))
        timed, total = timed + time.perf_counter() - start, total + len(a) * len(b)
        every.append(found)
        same = np.flatnonzero(confirmed(found.pairs, found.likeness))
        print(f"| {where} | {len(a):,} × {len(b):,} | {len(same)} |", flush=True)
        shown = [(one, a[found.pairs[k, 0]], other, b[found.pairs[k, 1]], found.likeness.difference[k]) for k in same]
        for k in range(0, len(shown), 40):
            draw(shown[k : k + 40], sheets / f"{re.sub('[^a-z0-9]+', '-', where.lower())}-{k // 40}.png")
        for left, row, right, column, difference in shown:
            print(f"    {left.label(row)} = {right.label(column)} ({difference:.2f})", flush=True)
    print(f"\n{total:,} pairs of pictures in {timed:.0f} s")
    return every


def draw(pairs: list[tuple[Pictures, int, Pictures, int, float]], path: Path) -> None:
    tiles = []
    for left, row, right, column, difference in pairs:
        tile = np.zeros((150, 420, 3), np.uint8)
        for at, (pictures, one) in enumerate(((left, row), (right, column))):
            image = pictures.read(one)
            factor = min(130 / image.shape[0], 205 / image.shape[1])
            small = cv2.resize(image, (max(1, int(image.shape[1] * factor)), max(1, int(image.shape[0] * factor))))
            # Lifted, so that people in dark rooms can be seen.
            tile[18 : 18 + small.shape[0], 210 * at : 210 * at + small.shape[1]] = (255 * (small / 255.0) ** 0.6).astype(np.uint8)
        title = f"{difference:.2f} {left.label(row)} {right.label(column)}"
        cv2.putText(tile, title, (2, 13), cv2.FONT_HERSHEY_SIMPLEX, 0.36, (255, 255, 255), 1)
        tiles.append(tile)
    tiles += [np.zeros_like(tiles[0])] * (-len(tiles) % 4)
    sheet = np.concatenate([np.concatenate(tiles[k : k + 4], 1) for k in range(0, len(tiles), 4)])
    cv2.imwrite(str(path), cv2.cvtColor(sheet, cv2.COLOR_RGB2BGR))


def sweep(copies: list[Compared], strangers: list[Compared]) -> None:
    """Both errors at other thresholds. Pairs of `strangers` include true duplicates: the count cannot and should not reach zero."""
    print(f"\nThresholds (in use: {SAME} and {SAME_IN_A_RECURRING_SCENE})\n\n| same | recurring scene | missed | confirmed between parts |")
    print("|---|---|---|---|")
    rows = sum(found.rows for found in copies)
    for same, recurring in SWEEP:
        lost = sum(missed(found, same=same, recurring=recurring) for found in copies) / rows
        false = sum(int(confirmed(found.pairs, found.likeness, same, recurring).sum()) for found in strangers)
        print(f"| {same} | {recurring} | {lost:.2%} | {false} |", flush=True)


if __name__ == "__main__":
    cv2.setNumThreads(1)
    main()
