"""The words and letters of a certificate, each in one line for somebody who is no engineer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from halfmask.privacy.certificate import Certificate

_NOT_HERE = " (Not used by this method.)"
_ADJACENCIES = {
    "zero-out": "the two cases that are compared: the person's private part as it was, and left out while all else stays",
    "replace-one": "the two cases that are compared: the person's private part as it was, and exchanged for anybody else's",
    "add-remove": "the two cases that are compared: the person in the data, and not in it",
}


def glossary(certificate: Certificate) -> dict[str, str]:
    """What each word means, in the order a reader meets them."""
    public = " ".join(certificate.public_assumptions)
    noised = certificate.noise_multiplier > 0
    unit = certificate.unit
    return {
        "ε (epsilon)": "how much anyone can learn about one person from the model: 0 is nothing; every 0.7 can double the odds of a "
        "guess; from about 10 on it is no protection worth the name",
        "δ (delta)": "how likely it is that the bound fails altogether; it should be far below one in the number of people",
        certificate.adjacency: _ADJACENCIES.get(certificate.adjacency, "the two cases that are compared"),
        "ψ (psi)": "the version of each private picture that anyone may see, such as a blurred one: whatever can be read from it is not "
        "protected." + ("" if "ψ" in public else _NOT_HERE),
        "S_pub": "a small set of people who are not protected at all, used to find out in which directions the model learns."
        + ("" if "S_pub" in public else _NOT_HERE),
        "C": f"the clip norm: the most that one {unit} may move the model in one step; whatever would move it further is cut to that."
        + ("" if noised else _NOT_HERE),
        "q": f"the sampling rate: the chance that one {unit} takes part in a given step, drawn by secret coins; the rarer, the less a step "
        "tells about anyone." + ("" if noised else _NOT_HERE),
        "σ (sigma)": "the noise multiplier: how strong the random noise is that every step adds, in units of C."
        + ("" if noised else _NOT_HERE),
        "as if all had been fixed in advance": "several runs on the same people are added up as if somebody had written all of them down "
        "before the first began; choosing the next one after a look at the last can cost a little more, and budgets are kept by a stricter "
        "sum",
    }
