"""A rehearsal: the whole of a private run, with views in the place of images.

Settings that are chosen by looking at private people's results cost privacy, and public people are often too few to choose on: what
noise does to five thousand people cannot be tried on four hundred. But where views and labels of private people are public, as in
feature DP, there is a dataset with as many people that costs nothing: their views. In a rehearsal the view plays the image, the view of
a view plays the view, and some of the private people play the test. What is learnt there of learning rates, dimensions and clip norms
carries over as far as images are like views: the number of people, the noise and the network are the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from halfmask.data.records import Datasets, Records
from halfmask.data.viewing import with_view
from halfmask.errors import HalfmaskError
from halfmask.views import View

# One in so many private people is set apart to be judged on.
_TEST_SHARE = 9


def rehearsal_of(data: Datasets, view: View) -> Datasets:
    """The dataset with nothing private in it.

    Formal guarantees: a function of views and labels of private people, and of public people. No private image is in what it returns, and
    the people of the test, who keep their labels, are not among those trained on: they are told apart by the coarsest unit that the
    dataset tells: by subject, else by image.
    """
    people = data.private.unit_ids(data.private.unit_names()[-1])
    order = np.unique(people, return_inverse=True)[1]
    judged = order % _TEST_SHARE == _TEST_SHARE - 1
    if not judged.any():
        raise HalfmaskError(f"a rehearsal sets one in {_TEST_SHARE} private people apart, and there are {order.max() + 1}: add some")
    shown = _as_images(data.private, view)
    private, test = (shown.take(np.flatnonzero(part)) for part in (~judged, judged))
    public, basis, tuning = (None if part is None else _as_images(part, view) for part in (data.public, data.basis, data.tuning))
    return replace(
        data,
        private=private,
        test=test,
        public=public,
        basis=basis,
        tuning=tuning,
        name=f"{data.name} (rehearsal)",
    )


def _as_images(records: Records, view: View) -> Records:
    """The records with their views for their private parts, and no views."""
    seen = with_view(records, view)
    assert seen.public is not None
    return replace(seen.without_view(), private=seen.public, key=f"{records.key}/{seen.view_key} as image")
