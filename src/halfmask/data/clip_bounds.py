"""How many clips a video or a subject has at most: by the settings, or by how the embedded world is drawn, never by counting private clips.

With such a bound the certificate of a promise to one clip also states what ε is worth to a video, or to a person. A dataset that breaks a
bound is refused, not cut: if some clips of a video were passed over because there are others, then one that leaves would let another in,
and the promise to one clip would be about two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from halfmask.data.clips import UNITS, Take
from halfmask.data.figures_clips import MOST_CLIPS, MOST_VIDEOS_OF_A_SUBJECT
from halfmask.errors import HalfmaskError

_CLIP, _VIDEO, _SUBJECT = UNITS


def bounds_in(unit: str, drawn: bool, clips: Mapping[str, int | None]) -> dict[str, int]:
    """By coarser units, how many of this one each has at most.

    Args:
        drawn: whether the clips are those of `figures`.
        clips: how many clips a video, and a subject, has at most by the settings; None where they do not say.
    """
    said = [{name: most for name, most in clips.items() if most is not None}]
    if drawn:
        said.append(dict(MOST_CLIPS))
    # A video has one clip at least, so that whoever has few clips has few videos.
    if unit == _VIDEO:
        said = [{name: most for name, most in one.items() if name == _SUBJECT} for one in said]
        if drawn:
            said.append({_SUBJECT: MOST_VIDEOS_OF_A_SUBJECT})
    elif unit != _CLIP:
        said = []
    return {name: min(one[name] for one in said if name in one) for name in UNITS if any(name in one for one in said)}


def refuse_more(takes: Sequence[Take], clips: Mapping[str, int | None], dataset: str) -> None:
    """Refuse private clips that break a bound of the settings; numbers alone, for a name can be a person's."""
    for unit, most in clips.items():
        if most is None:
            continue
        silent = sum(take.subject is None for take in takes) if unit == _SUBJECT else 0
        if silent:
            raise HalfmaskError(
                f"data.clips_per_{unit} is {most} and {silent:,} clips of '{dataset}' do not say whom they show: leave it out, or add ids"
            )
        counts = Counter(take.subject if unit == _SUBJECT else take.video or take.name for take in takes)
        over = sum(count > most for count in counts.values())
        if over:
            raise HalfmaskError(
                f"data.clips_per_{unit} is {most} and {over:,} private {unit}s have more clips, up to {max(counts.values()):,}: raise it, "
                "or take some of theirs out of the dataset"
            )
