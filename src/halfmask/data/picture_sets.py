"""Finding the pictures a recipe names, and putting their parts where the methods expect them.

A dataset on disk is divided by subject, counted from 1 in the order of their ids (`101-300`): whoever is in one part is in no other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from halfmask.data.crops import ON_BAD
from halfmask.data.figures_pictures import figures_pictures
from halfmask.data.pictures import STEP, PictureRecords, check_size
from halfmask.data.prints import fingerprints_of
from halfmask.data.records import Datasets
from halfmask.errors import HalfmaskError
from halfmask.settings import setting

Report = Callable[[str, int, int], None]

# So many public pictures of `figures`, after those that are learnt from, judge what was pre-trained.
_JUDGED = 320
_SIDE = f"a multiple of {STEP}, at least {STEP}"


def _fits(side: object) -> bool:
    return isinstance(side, int) and side >= STEP and side % STEP == 0


@dataclass(frozen=True)
class PictureDataConfig:
    """Which pictures to use, and how large they are."""

    name: str = setting(
        "figures",
        "Pictures of the embedded world `figures`, a dataset folder, or a name below `$HALFMASK_DATA`.",
        fits=bool,
        expected="'figures', a dataset folder, or a name below $HALFMASK_DATA",
    )
    private: int = setting(2000, "How many private pictures of `figures`.", at_least=0)
    public: int = setting(800, "How many public pictures of `figures`.", at_least=0)
    public_skip: int = setting(
        0,
        "How many public pictures of `figures` to pass over: those that the released checkpoint was trained on.",
        at_least=0,
    )
    test: int = setting(640, "How many test pictures of `figures`.", at_least=0)
    seed: int = setting(0, "Draws the people of `figures`.", at_least=0)
    per_subject: int = setting(16, "How many pictures of `figures` show each person.", at_least=1)
    actions: list[str] = setting(
        [], "The actions to keep, in this order; all if none is named. People of `figures` do those that are named equally often."
    )
    height: int = setting(64, "Height of the pictures in pixels.", fits=_fits, expected=_SIDE)
    width: int = setting(48, "Width of the pictures in pixels.", fits=_fits, expected=_SIDE)
    strangers: list[str] = setting(
        [],
        "Parts without subject ids of which the data holder declares, where subjects are protected, that nobody in them is. The "
        "certificate says so.",
        one_of=("public", "basis", "tuning", "test"),
        called="part (data.strangers)",
    )
    recurring: str = setting(
        "refuse",
        "What to do about private people who recur in another part: `refuse` the dataset, or `leave-out` those private records, with "
        "all of their units. They are public, or scored openly, as it is; the certificate says how many are not protected.",
        one_of=("refuse", "leave-out"),
        called="way to treat people who recur (data.recurring)",
    )
    on_bad: str = setting(
        "refuse",
        "`refuse` an image file that is missing or damaged, or `skip` it.",
        one_of=ON_BAD,
        called="way to treat bad images (data.on_bad)",
    )
    workers: int = setting(0, "Threads that open pictures; 0 for one per core.", at_least=0)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width."""
        return self.height, self.width


def load_pictures(config: PictureDataConfig, report: Report | None = None) -> Datasets:
    """Read (or draw) all parts."""
    check_size(config.size)
    if config.name == "figures" and config.private < 1:
        raise HalfmaskError("data.private is 0: the dataset is empty, there is nobody to learn from")
    counts = {"private": (config.private, 0), "public": (config.public, config.public_skip), "test": (config.test, 0)}
    parts = {part: _drawn(config, part, count, skip, report) for part, (count, skip) in counts.items() if count}
    private = parts["private"]
    return Datasets(private, parts.get("public"), parts.get("test"), config.name, fingerprints_of(private))


def load_picture_test(config: PictureDataConfig, report: Report | None = None) -> PictureRecords:
    """The people a model is judged on, alone: judging a model opens no private picture."""
    if config.name == "figures" and config.test < 1:
        raise HalfmaskError("data.test is 0: there is nobody to judge the model on")
    return _drawn(config, "test", config.test, 0, report)


def load_public_pictures(config: PictureDataConfig, report: Report | None = None) -> tuple[PictureRecords, PictureRecords | None]:
    """The public people of a dataset, and those set apart for tuning; no picture of anybody else is opened.

    Of `figures`, `data.public` public pictures, and some of people who follow them to judge by.
    """
    if config.name == "figures" and config.public < 1:
        raise HalfmaskError("data.public is 0: there is nobody to pre-train on")
    # Whoever is judged by is somebody new: all pictures of the last one who is learnt from are passed over.
    learnt = config.public_skip + config.public
    judged = -(-learnt // config.per_subject) * config.per_subject
    return _drawn(config, "public", config.public, config.public_skip, report), _drawn(config, "public", _JUDGED, judged, report)


def _drawn(config: PictureDataConfig, population: str, count: int, skip: int, report: Report | None) -> PictureRecords:
    telling = (lambda done, total: report(f"drawing {population} people", done, total)) if report else None
    return figures_pictures(population, count, config.seed, skip, config.size, config.per_subject, config.actions, telling)
