"""Who is it, and what do they do? On looks that are made up, so that it is known what can be told from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from halfmask.audit.looks import Looks
from halfmask.audit.recognition import Recognition, action_utility, divide, fit, identity_attack
from halfmask.audit.separation import Measured
from halfmask.errors import HalfmaskError

pytestmark = pytest.mark.usefixtures("one_thread")
PEOPLE, EACH, ACTIONS = 12, 9, 3


def world(seed: int = 0) -> tuple[Looks, np.ndarray, np.ndarray]:
    """People told apart by colours, doing things that are told apart by edges and shape."""
    rng = np.random.default_rng(seed)
    subjects = np.repeat(np.arange(PEOPLE) + 100, EACH)
    actions = rng.integers(0, ACTIONS, len(subjects))

    def block(labels: np.ndarray, width: int) -> np.ndarray:
        centres = rng.normal(0, 1, (labels.max() + 1, width))
        return (centres[labels] + rng.normal(0, 0.4, (len(labels), width))).astype(np.float32)

    return Looks(block(actions, 20), block(actions, 10), block(subjects - 100, 15)), actions, subjects


def noise(like: Looks, seed: int = 9) -> Looks:
    rng = np.random.default_rng(seed)
    return Looks(*(rng.normal(0, 1, block.shape).astype(np.float32) for block in (like.edges, like.shape, like.parts)))


def even(like: Looks) -> Looks:
    return Looks(*(np.ones_like(block) for block in (like.edges, like.shape, like.parts)))


def test_the_recogniser_learns_what_is_there_and_nothing_else() -> None:
    looks, actions, subjects = world()
    learn, test = np.arange(0, len(looks), 2), np.arange(1, len(looks), 2)
    who = fit(looks.take(learn), subjects[learn])
    what = fit(looks.take(learn), actions[learn], subjects[learn])
    assert (who.names(looks.take(test)) == subjects[test]).mean() > 0.9 and who.mix <= 0.5
    assert (what.names(looks.take(test)) == actions[test]).mean() > 0.9 and what.mix >= 0.5
    same = even(looks)
    assert len(set(fit(same.take(learn), subjects[learn]).names(same.take(test)))) == 1, "one answer for all"
    assert np.exp(who.log_probabilities(looks.take(test))).sum(1) == pytest.approx(1)


def test_actions_are_recognised_of_people_who_were_left_out() -> None:
    looks, actions, subjects = world()
    found = action_utility(looks, actions, subjects, folds=3)
    assert found.accuracy.value > 0.9 and found.tested_on == len(looks) and found.learnt_from == 2 * len(looks)
    assert found.classes == ACTIONS and found.people == PEOPLE
    assert found.chance == pytest.approx(np.bincount(actions).max() / len(actions))
    # Somebody who always does the same, and is known by how they look, is recognised only by who has seen them.
    own = np.repeat(np.random.default_rng(1).permutation(np.arange(PEOPLE) % ACTIONS), EACH)
    by_look = replace(looks, edges=looks.parts, shape=looks.parts)
    assert action_utility(by_look, own, subjects, folds=4).accuracy.value < 0.7
    assert fit(by_look, own).names(by_look).tolist() == own.tolist(), "though it can be learnt of people who are there"


def test_what_was_learnt_on_hidden_pictures_is_asked_of_others() -> None:
    looks, actions, subjects = world()
    learnt = action_utility(looks, actions, subjects).accuracy.value
    assert action_utility(looks, actions, subjects, tested=looks).accuracy.value == learnt
    # What was learnt of pictures says nothing of noise, and what was learnt of noise says nothing of pictures.
    assert action_utility(looks, actions, subjects, tested=noise(looks)).accuracy.value < 0.5 < learnt
    assert action_utility(noise(looks), actions, subjects, tested=looks).accuracy.value < 0.5
    with pytest.raises(HalfmaskError, match="in another form"):
        action_utility(looks, actions, subjects, tested=looks.take(np.arange(3)))


def test_poses_that_are_known_do_not_help_with_actions() -> None:
    looks, actions, subjects = world()
    told = replace(noise(looks), known_parts=np.eye(ACTIONS, dtype=np.float32)[actions])
    assert action_utility(told, actions, subjects).accuracy.value < 0.6
    assert action_utility(replace(looks, known_parts=told.known_parts), actions, subjects).accuracy.value > 0.9


def test_pictures_of_no_known_action_are_passed_over() -> None:
    looks, actions, subjects = world()
    actions[::2] = -1
    found = action_utility(looks, actions, subjects)
    assert found.tested_on == (actions >= 0).sum() and found.classes == ACTIONS


def test_the_last_third_is_to_be_named() -> None:
    subjects = np.array([7, 7, 3, 7, 7, 7, 7, 3, 5, 5, 5])
    found = divide(subjects)
    assert found.test.tolist() == [10, 5, 6] and found.learn.tolist() == [8, 9, 0, 1, 3, 4]
    assert found.people == 2 and found.left_out == 1, "who has two pictures is left out, and counted"
    with pytest.raises(HalfmaskError, match="at least two"):
        divide(np.array([1, 1, 1, 2]))


def test_attackers_learn_from_the_first_and_are_asked_about_the_last() -> None:
    looks, _, subjects = world()
    division = divide(subjects)
    garbage = noise(looks)

    def only(rows: np.ndarray) -> Looks:
        kept = np.isin(np.arange(len(looks)), rows)[:, None]
        pairs = zip((looks.edges, looks.shape, looks.parts), (garbage.edges, garbage.shape, garbage.parts), strict=True)
        return Looks(*(np.where(kept, good, bad) for good, bad in pairs))

    found = identity_attack(only(division.learn), only(division.test), subjects)
    assert found.accuracy.value > 0.9 and found.accuracy.holds(found.accuracy.value)
    assert (found.learnt_from, found.tested_on, found.people, found.left_out) == (72, 36, PEOPLE, 0)
    assert found.chance == pytest.approx(1 / PEOPLE)
    for known, hidden in ((only(division.test), looks), (looks, only(division.learn))):
        assert identity_attack(known, hidden, subjects).accuracy.value < 0.4
    assert identity_attack(looks, even(looks), subjects).accuracy.value == pytest.approx(1 / PEOPLE)


def test_who_knows_the_defence_is_the_stronger() -> None:
    looks, _, subjects = world()
    # A defence that changes all colours in one way: undone by who has seen what it does.
    hidden = replace(looks, parts=-3 * looks.parts[:, ::-1] + 2)
    assert identity_attack(looks, hidden, subjects).accuracy.value < 0.4
    assert identity_attack(hidden, hidden, subjects).accuracy.value > 0.9


def test_who_names_people_may_know_the_poses() -> None:
    looks, _, subjects = world()
    blind = noise(looks)
    assert identity_attack(blind, blind, subjects).accuracy.value < 0.4
    knowing = replace(blind, known_parts=looks.parts)
    assert identity_attack(knowing, knowing, subjects).accuracy.value > 0.9


def test_what_cannot_be_asked_is_refused() -> None:
    looks, actions, subjects = world()
    with pytest.raises(HalfmaskError, match="two kinds"):
        fit(looks, np.zeros(len(looks), int))
    with pytest.raises(HalfmaskError, match="fewer folds"):
        action_utility(looks, actions, subjects, folds=40)
    with pytest.raises(HalfmaskError, match="as many"):
        identity_attack(looks, looks.take(np.arange(4)), subjects)


def test_a_file_says_what_was_found() -> None:
    body = Recognition(Measured(0.5, 0.25, 0.75), 1 / 3, 3, 9, 18, 9, 2).to_json()
    assert body["accuracy"] == {"value": 0.5, "low": 0.25, "high": 0.75} and body["chance"] == 0.33333 and body["left_out"] == 2
