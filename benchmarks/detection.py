"""Where people are, and then their joints: `python -m benchmarks.detection MODEL COCO`, MODEL a run of poses or an exported file.

COCO is a folder in COCO's form (annotations/person_keypoints_*2017.json). For each way of finding people: average precision of boxes
(COCO's own code), and OKS-AP of the poses in them over the twelve joints from shoulders to ankles that every skeleton has. Annotated boxes
show what the pose network alone loses.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from pycocotools.coco import COCO as CocoIndex
from pycocotools.cocoeval import COCOeval

from halfmask.data.images import read_image
from halfmask.data.mapping import map_joints
from halfmask.data.skeleton import COCO
from halfmask.inference.detection import ByNetwork, Detected, Hog, one_of_many
from halfmask.inference.onnx_file import open_onnx
from halfmask.inference.poses import PoseSeer, place_people

BODY = [joint for joint, name in enumerate(COCO.names) if not name.endswith(("nose", "eye", "ear"))]


def opened(path: Path, flip_test: bool) -> PoseSeer:
    if path.suffix == ".onnx":
        return open_onnx(path, threads=1)
    import torch

    from halfmask.inference.torch_pose import pose_of_run
    from halfmask.training.runs import open_run

    torch.set_num_threads(1)
    return pose_of_run(open_run(path, "cpu"), flip_test)


def index_of(body: dict[str, Any]) -> CocoIndex:
    """With the twelve joints alone."""
    annotations = []
    for one in body["annotations"]:
        joints = np.array(one.get("keypoints") or [0] * 3 * len(COCO), float).reshape(-1, 3)
        joints[[joint for joint in range(len(COCO)) if joint not in BODY]] = 0
        annotations.append(one | {"keypoints": joints.ravel().tolist(), "num_keypoints": int((joints[:, 2] > 0).sum())})
    with contextlib.redirect_stdout(io.StringIO()):
        index = CocoIndex()
        index.dataset = {"info": {}, "images": body["images"], "annotations": annotations, "categories": [{"id": 1, "name": "person"}]}
        index.createIndex()
    return index


def precision(truth: CocoIndex, results: list[dict[str, Any]], kind: str) -> tuple[float, float, float]:
    """AP over all thresholds, at 0.5, and the largest recall."""
    if not results:
        return 0.0, 0.0, 0.0
    with contextlib.redirect_stdout(io.StringIO()):
        evaluation = COCOeval(truth, truth.loadRes(results), kind)
        if kind == "keypoints":
            sigmas = np.array(COCO.oks_sigmas)
            evaluation.params.kpt_oks_sigmas = sigmas
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    recall = evaluation.stats[8 if kind == "bbox" else 5]
    return tuple(100 * float(value) for value in (evaluation.stats[0], evaluation.stats[1], recall))  # type: ignore[return-value]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--part", default="val")
    parser.add_argument("--ways", default="annotated,whole,hog,hog-judged,network,both")
    parser.add_argument("--surest", type=float, default=0.3, help="the mean score at which the network has found somebody")
    parser.add_argument("--no-flip-test", action="store_true")
    options = parser.parse_args()
    network = opened(options.model, not options.no_flip_test)
    body = json.loads((options.data / f"annotations/person_keypoints_{options.part}2017.json").read_text())
    truth, images = index_of(body), body["images"]
    to_coco = map_joints(network.skeleton, COCO)
    hog, own = Hog(), ByNetwork(network, network.input_size, options.surest)
    people = sum(1 for one in body["annotations"] if not one.get("iscrowd"))
    print(
        f"{options.part}: {len(images)} pictures, {people} people ({network.words}, {'calibrated' if network.calibrated else 'raw'} scores)"
    )
    print("way          found  box AP  AP50  most recalled  pose AP  AP50  ms a picture")
    for way in options.ways.split(","):
        boxes, poses, taken, found = [], [], 0.0, 0
        for image in images:
            picture = read_image(options.data / f"{options.part}2017" / image["file_name"])
            start = time.perf_counter()
            if way == "annotated":
                own_boxes = [one["bbox"] for one in body["annotations"] if one["image_id"] == image["id"] and not one.get("iscrowd")]
                detected = [Detected(tuple(box), 1.0) for box in own_boxes if min(box[2:]) > 1]
            elif way == "whole":
                detected = [Detected((0.0, 0.0, float(picture.shape[1]), float(picture.shape[0])), 1.0)]
            elif way in ("hog", "hog-judged"):
                detected = hog(picture)
            elif way == "network":
                detected = own(picture)
            else:
                detected = one_of_many([*hog(picture), *own(picture)])
            taken += time.perf_counter() - start
            posed = place_people(network, picture, [one.box for one in detected], [one.score for one in detected])
            if way == "hog-judged":
                # Whom the detector finds, ranked by how sure the pose network is of them.
                detected = [Detected(one.box, one.score * person.score) for one, person in zip(detected, posed, strict=True)]
            found += len(posed)
            for one, person in zip(detected, posed, strict=True):
                boxes.append({"image_id": image["id"], "category_id": 1, "bbox": list(one.box), "score": one.score})
                joints, known = to_coco.apply(person.joints[None], np.ones((1, len(person.scores)), bool))
                flat = np.column_stack([joints[0], known[0]]).ravel().tolist()
                poses.append({"image_id": image["id"], "category_id": 1, "keypoints": flat, "score": one.score * person.score})
        box, pose = precision(truth, boxes, "bbox"), precision(truth, poses, "keypoints")
        speed = 1e3 * taken / len(images)
        print(f"{way:12s} {found:5d}  {box[0]:6.1f}  {box[1]:4.1f}  {box[2]:13.1f}  {pose[0]:7.1f}  {pose[1]:4.1f}  {speed:12.0f}")


if __name__ == "__main__":
    main()
