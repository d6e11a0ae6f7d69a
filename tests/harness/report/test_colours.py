"""Lost is never taken for fail: by nobody's eyes, in light, in the dark, and on grey paper.

Dichromats' colours are simulated with the matrices of Machado, Oliveira and Fernandes (2009) at
full severity, in linear RGB; distances are CIE 1976 differences in Lab.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import shalott.harness.report.report_page as page

pytestmark = pytest.mark.unit

CSS = (Path(page.__file__).parent / "templates" / "report.css").read_text(encoding="utf-8")
LIGHT, DARK = CSS.split("@media (prefers-color-scheme: dark)", 1)
EYES = {
    "trichromat": np.eye(3),
    "protanope": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
         [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranope": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
         [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanope": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602],
         [0.004733, 0.691367, 0.303900]]
    ),
    "grey paper": np.tile([0.2126, 0.7152, 0.0722], (3, 1)),
}  # fmt: skip
TOLD_APART = 20.0  # what is plainly another colour; 2.3 is just noticeable

Colour = npt.NDArray[np.float64]


def colour(name: str, dark: bool) -> Colour:
    found = re.search(rf"--{name}: (#[0-9a-f]{{6}})", DARK) if dark else None
    found = found or re.search(rf"--{name}: (#[0-9a-f]{{6}})", LIGHT)
    assert found, name
    return np.array([int(found[1][at : at + 2], 16) / 255 for at in (1, 3, 5)])


def lab(rgb: Colour, eyes: Colour) -> Colour:
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(eyes @ linear, 0, 1)
    to_xyz = np.array(
        [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    )
    xyz = to_xyz @ seen / np.array([0.9505, 1.0, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(one: str, other: str, eyes: str, dark: bool) -> float:
    seen = [lab(colour(name, dark), EYES[eyes]) for name in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("eyes", EYES)
@pytest.mark.parametrize("other", ["fail", "ok", "info"])
def test_lost_is_told_from_every_outcome_of_an_operation(eyes: str, other: str, dark: bool) -> None:
    assert apart("lost", other, eyes, dark) > TOLD_APART


def test_the_measure_can_fail() -> None:
    """In the dark the red of bad news and the pink of fail were one colour to a protanope."""
    assert apart("bad", "fail", "grey paper", dark=True) < TOLD_APART


@pytest.mark.parametrize("rule", [".c-lost", ".losses .at"])
def test_lost_has_a_pattern_beside_its_colour(rule: str) -> None:
    body = CSS[CSS.index(rule + " {") :].split("}", 1)[0]
    assert "repeating-linear-gradient" in body
    assert "print-color-adjust: exact" in CSS
