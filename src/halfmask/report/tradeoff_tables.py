"""A measured trade-off for reading: its places over seeds, the tables at matched utility, what ε bought, and the published numbers.

All of it is made from the audit's file alone, so that a page can be written again without measuring anything again.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from halfmask.audit.separation import Measured
from halfmask.report.markup import table
from halfmask.report.tradeoff import Family, Place, identity_at, over_seeds

Body = Mapping[str, Any]
SOURCE = "Sun, Wang and Liu, Human Action Image Generation with Differential Privacy, Table 2"
# The share of actions recognised at which the paper compares, and its identity attack there: raw attacker, at our names of the families.
PUBLISHED_UTILITY = 0.65
PUBLISHED: dict[str, dict[str, float]] = {
    "CAD-60": {"theirs, ε 1": 0.2862, "blur σ 3.8": 0.8020, "downsampling 1/8": 0.8802, "superpixels 800": 0.9731},
    "Market-1501": {"theirs, ε 1": 0.0027, "blur σ 3.8": 0.1305, "downsampling 1/8": 0.3901, "superpixels 800": 0.6818},
}
PUBLISHED_CHANCE = {"CAD-60": 0.25, "Market-1501": 0.0013}
_QUALITY = {
    "frechet_distance": ("distance ↓", 2),
    "pose_kept": ("pose kept", 1),
    "generated_precision": ("precision", 1),
    "generated_recall": ("recall", 1),
}
_UNKNOWN = "—"
_ACTIONS = ("action", "action_on_raw")
# A run is a success of its kind at this ε, if there is one: the one that the paper's table is about.
_WANTED_EPSILON = 1.0


@dataclass(frozen=True)
class Row:
    """One way at one strength, over seeds.

    Attributes:
        action: accuracy from 0 to 1, learnt and asked in hidden pictures; None where nobody knows what people do.
        on_raw: the same, learnt in hidden pictures and asked in raw ones: what they are worth to who trains on them.
        quality: means over seeds, and the standard deviation beside where there are several.
    """

    family: str
    strength: str
    kind: str
    epsilon: float | None
    seeds: int
    action: Measured | None
    on_raw: Measured | None
    identity: dict[str, Measured]
    quality: dict[str, tuple[float, float | None]]


def gathered(body: Body) -> list[Row]:
    """The places of every family, families in the order in which they were measured, the weakest place first."""
    groups: dict[tuple[str, str], list[Body]] = {}
    for point in body["points"]:
        groups.setdefault((point["family"], point["strength"]), []).append(point)
    families = list(dict.fromkeys(point["family"] for point in body["points"]))
    keys = sorted(groups, key=lambda key: (families.index(key[0]), _order(groups[key][0])))
    return [_row(groups[key]) for key in keys]


def _order(point: Body) -> float:
    return -math.inf if point["order"] is None else float(point["order"])


def _row(points: Sequence[Body]) -> Row:
    first = points[0]
    actions = [None if first[name] is None else over_seeds([_measured(point[name]) for point in points]) for name in _ACTIONS]
    epsilon = first["epsilon"]
    if epsilon is None and first["kind"] == "run":
        epsilon = math.inf
    quality = {}
    for name in first["quality"]:
        values = [point["quality"][name] for point in points]
        quality[name] = (float(np.mean(values)), float(np.std(values, ddof=1)) if len(values) > 1 else None)
    return Row(
        first["family"],
        first["strength"],
        first["kind"],
        epsilon,
        len(points),
        actions[0],
        actions[1],
        {name: over_seeds([_measured(point["identity"][name]) for point in points]) for name in first["identity"]},
        quality,
    )


def _measured(found: Body) -> Measured:
    return Measured(**found["accuracy"])


def families_of(body: Body, from_raw: bool = False) -> list[Family]:
    """The curves and marks of a drawing; none where nobody knows what people do.

    Args:
        from_raw: let the curve of each baseline begin at the raw picture, which is what it is at no strength.
    """
    rows = [row for row in gathered(body) if row.action is not None]
    raw = [_place(row, "raw") for row in rows if row.kind == "raw"]
    first_run = next((row.family for row in rows if row.kind == "run"), None)
    found = []
    for name in dict.fromkeys(row.family for row in rows):
        own = [row for row in rows if row.family == name]
        places = [_place(row) for row in own]
        if from_raw and own[0].kind == "baseline":
            places = raw + places
        found.append(Family(name, tuple(places), ours=name == first_run, reference=own[0].kind == "raw"))
    return found


def _place(row: Row, strength: str | None = None) -> Place:
    assert row.action is not None
    return Place(row.strength if strength is None else strength, row.action, row.identity)


def at_one(body: Body) -> Row | None:
    """The run of the first curve whose ε is nearest to 1: the one that the tables are about."""
    rows = gathered(body)
    first = next((row.family for row in rows if row.kind == "run"), None)
    ours = [row for row in rows if row.family == first and row.kind == "run" and row.epsilon]
    return min(ours, key=lambda row: abs(math.log(row.epsilon or 1.0) - math.log(_WANTED_EPSILON)), default=None)


def heights(body: Body) -> list[float]:
    """At which utilities families are compared: as asked, or the paper's, if raw pictures reach it, and that of ours at ε 1."""
    if body.get("matched"):
        return list(body["matched"])
    one = at_one(body)
    found = [PUBLISHED_UTILITY] if _most_useful(body) >= PUBLISHED_UTILITY else []
    if one is not None and one.action is not None:
        found.append(one.action.value)
    return found


def _most_useful(body: Body) -> float:
    return max((row.action.value for row in gathered(body) if row.action is not None), default=0.0)


def matched_table(body: Body, utility: float) -> tuple[list[str], list[list[str]]]:
    """What of identity is left in each family at one utility, and how many times what is left in ours.

    Of a family that is more useful than that at all its strengths it is known that no more is left than at the one that hides most.
    """
    families = families_of(body, from_raw=True)
    attackers = list(dict.fromkeys(name for family in families for place in family.places for name in place.identity))
    ours = next((family for family in families if family.ours), None)
    head = ["way", "nearest strength", "its actions"]
    for name in attackers:
        head += [f"identity, {name} attacker", "times ours"]
    rows = []
    for family in families:
        if family.reference:
            continue
        nearest = min(family.places, key=lambda place: abs(place.utility.value - utility))
        cells = [family.name, nearest.strength or _UNKNOWN, f"{nearest.utility.value:.1%}"]
        for name in attackers:
            found, own = identity_at(family, name, utility), None if ours is None else identity_at(ours, name, utility)
            most = ""
            if found is None and all(place.utility.value > utility for place in family.places):
                found, most = min(place.identity[name].value for place in family.places if name in place.identity), "≤ "
            cells += [_UNKNOWN if found is None else f"{most}{found:.1%}"]
            cells += [_UNKNOWN if found is None or not own or family.ours else f"{most}{found / own:.1f} ×"]
        rows.append(cells)
    return head, rows


def published_table(body: Body) -> tuple[list[str], list[list[str]]]:
    """The paper's numbers, as theirs: of the dataset at hand, or of both where it is neither."""
    own = {"cad60": "CAD-60", "market1501": "Market-1501"}.get(str(body.get("format")))
    chosen = [own] if own else list(PUBLISHED)
    head = ["theirs (not measured here)", *PUBLISHED["CAD-60"], "chance"]
    return head, [[name, *(f"{value:.2%}" for value in PUBLISHED[name].values()), f"{PUBLISHED_CHANCE[name]:.2%}"] for name in chosen]


def bought(body: Body) -> list[str]:
    """Whether each ε has bought anything that is not to be had for free: a sentence for each place of each curve of runs.

    It has, where actions are recognised better and pictures are nearer to real ones than with everything that is free.
    """
    rows = gathered(body)
    free = [row for row in rows if row.kind in ("start", "public", "drawn")]
    lines = []
    for row in rows:
        if row.kind != "run" or not free:
            continue
        compared = [_against(row, other) for other in free]
        verdict = "more than what is free" if all(won for won, _ in compared) else "ε bought nothing that is not free"
        lines.append(f"{row.family}, {row.strength}: {verdict}. {'; '.join(words for _, words in compared)}.")
    return lines


def _against(row: Row, other: Row) -> tuple[bool, str]:
    """Whether a run is better than something free, and in what it is and is not."""
    better: list[str] = []
    worse: list[str] = []
    won = True
    for name, mine, theirs in (("actions", row.action, other.action), ("on raw", row.on_raw, other.on_raw)):
        if mine is not None and theirs is not None:
            words = f"{name} {mine.value:.1%} : {theirs.value:.1%}"
            (better if mine.value > theirs.value else worse).append(words)
            won &= name != "actions" or mine.value > theirs.value
    if "frechet_distance" in row.quality and "frechet_distance" in other.quality:
        here, there = row.quality["frechet_distance"][0], other.quality["frechet_distance"][0]
        (better if here < there else worse).append(f"distance {here:.2f} : {there:.2f}")
        won &= here < there
    parts = [f"{title} in {', '.join(found)}" for title, found in (("better", better), ("not better", worse)) if found]
    return won, f"against {other.family} {', '.join(parts)}"


def places_table(body: Body, intervals: bool = True) -> tuple[list[str], list[list[str]]]:
    """Every place with all of its numbers; without intervals it fits a terminal."""
    rows = gathered(body)
    acts = any(row.action is not None for row in rows)
    attackers = list(dict.fromkeys(name for row in rows for name in row.identity))
    kept = [name for name in _QUALITY if any(name in row.quality for row in rows)]
    kept = kept if intervals else [name for name in kept if name in ("frechet_distance", "pose_kept")]
    head = [
        "way",
        *(["actions", "on raw"] if acts else []),
        *(f"identity, {name}" for name in attackers),
        *(_QUALITY[name][0] for name in kept),
    ]
    lines = []
    for row in rows:
        title = f"{row.family} {row.strength}".strip() + (f" ({row.seeds} seeds)" if row.seeds > 1 else "")
        cells = [title]
        if acts:
            cells += [_UNKNOWN if one is None else _share(one, row.seeds, intervals) for one in (row.action, row.on_raw)]
        cells += [_share(row.identity[name], row.seeds, intervals) if name in row.identity else _UNKNOWN for name in attackers]
        cells += [_number(row.quality.get(name), _QUALITY[name][1], intervals) for name in kept]
        lines.append(cells)
    return head, lines


def _share(found: Measured, seeds: int, intervals: bool) -> str:
    if not intervals:
        return f"{100 * found.value:.1f}"
    if seeds > 1:
        return f"{100 * found.value:.1f} ± {100 * (found.high - found.value):.1f}"
    return f"{100 * found.value:.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def _number(found: tuple[float, float | None] | None, digits: int, intervals: bool) -> str:
    if found is None:
        return _UNKNOWN
    return f"{found[0]:.{digits}f}" + ("" if found[1] is None or not intervals else f" ± {found[1]:.{digits}f}")


def facts(body: Body) -> list[str]:
    """What was measured on whom, before the tables."""
    chance, like = body["chance"], body["like"]
    lines = [
        f"{body['to_name']:,} pictures of {body['people']:,} private people of {body['dataset']} are to be named, from "
        f"{body['pictures'] - body['to_name']:,} others of the same people; chance is {chance['identity']:.2%}."
    ]
    if "utility" in chance:
        lines.append(
            f"{len(body['actions'])} actions are recognised of people who were left out, in {body['folds']} folds; the commonest is "
            f"{chance['utility']:.1%} of all. On raw: what was learnt from hidden pictures, asked in raw ones."
        )
        if not body.get("matched") and _most_useful(body) < PUBLISHED_UTILITY:
            lines.append(f"No way reaches the {PUBLISHED_UTILITY:.0%} at which the paper compares: it is done where ours is at ε 1.")
    else:
        lines.append("Nobody knows what people do there: identity alone is compared, at the strengths that the paper compares.")
    if not like["pictures"]:
        return [*lines, "Everybody is private there, so that generated pictures are held against nobody's."]
    lines.append(
        f"Distance (Fréchet), precision and recall are to {like['pictures']:,} {like['part']} pictures, in the eyes of {body['judge']}; "
        "the pose is the one asked for. Numbers but distance are percentages."
    )
    return lines


def markdown(body: Body) -> str:
    """Everything as text."""
    parts = ["# Utility against identity", *facts(body), _markdown(*places_table(body))]
    if "utility" in body["chance"]:
        for utility in heights(body):
            parts += [f"## Where {utility:.1%} of actions are recognised", _markdown(*matched_table(body, utility))]
    lines = bought(body)
    if lines:
        parts += ["## What ε bought", "\n".join(f"- {line}" for line in lines)]
    parts += [f"## Published: {SOURCE}", _published_words(), _markdown(*published_table(body))]
    return "\n\n".join(parts) + "\n"


def html_sections(body: Body) -> list[str]:
    """What stands on the page below the table of places."""
    parts = []
    if "utility" in body["chance"]:
        for utility in heights(body):
            parts += [f"<h3>Where {utility:.1%} of actions are recognised</h3>", table(*matched_table(body, utility))]
        parts.append('<p class="small">Between strengths curves are taken as straight, and those of filters begin at the raw picture.</p>')
    lines = bought(body)
    if lines:
        items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
        parts += ["<h3>What ε bought</h3>", f"<ul>{items}</ul>"]
    head, rows = published_table(body)
    parts += [f"<h3>Published: {html.escape(SOURCE)}</h3>", f"<p>{html.escape(_published_words())}</p>", table(head, rows)]
    return parts


def _published_words() -> str:
    return (
        f"Their people, recogniser and pictures are others than these: the raw attacker, where {PUBLISHED_UTILITY:.0%} of CAD-60's actions "
        "are recognised; Market-1501 at the same strengths. What compares is the order, and by how many times."
    )


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'|'.join(['---'] + ['---:'] * (len(head) - 1))}|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])
