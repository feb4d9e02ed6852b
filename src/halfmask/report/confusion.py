"""A confusion matrix: the class of a clip down, what it was taken for across, shaded by the share of its row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from halfmask.report import canvas

# White to the house's blue.
_BLUE = np.array(canvas.PALETTE[0], float)
_TEXT = 0.4


def row_shares(confusion: np.ndarray) -> np.ndarray:
    """Each row in %; NaN for a class without clips."""
    confusion = np.asarray(confusion, float)
    clips = confusion.sum(1, keepdims=True)
    return np.where(clips > 0, 100 * confusion / np.maximum(clips, 1), np.nan)


def confusion_picture(confusion: np.ndarray, classes: Sequence[str], title: str) -> np.ndarray:
    """The drawing; counts are written where cells have room for them."""
    confusion = np.asarray(confusion)
    shares = row_shares(confusion)
    known = len(classes)
    cell = max(10, min(44, 1000 // max(1, known)))
    names = max((canvas.text_size(name, _TEXT)[0] for name in classes), default=0)
    left, top = names + 40, 78
    width = max(left + cell * known + 30, canvas.text_size(title, 0.6)[0] + 48, 420)
    height = top + cell * known + names + 46
    picture = canvas.blank(width, height)
    # All counts or none: some would look as if the others were 0.
    written = max((canvas.text_size(str(count), _TEXT)[0] for count in confusion.ravel()), default=0) <= cell - 6
    canvas.draw_text(picture, title, (24, 26), 0.6)
    canvas.draw_text(picture, "down: what it is; across: what it was taken for; shade: share of the row", (24, 52), _TEXT, canvas.FAINT_INK)
    for row in range(known):
        y = top + row * cell
        canvas.draw_text(picture, classes[row], (left - 8, y + cell / 2), _TEXT if cell > 12 else 0.33, align="right")
        for column in range(known):
            x = left + column * cell
            share = shares[row, column]
            colour = canvas.GRID if np.isnan(share) else tuple(int(part) for part in 255 + (_BLUE - 255) * share / 100)
            canvas.fill_box(picture, (x, y), (x + cell - 1, y + cell - 1), colour)  # type: ignore[arg-type]
            if written and confusion[row, column]:
                ink = canvas.WHITE if share > 55 else canvas.INK
                canvas.draw_text(picture, str(confusion[row, column]), (x + cell / 2, y + cell / 2), _TEXT, ink, align="centre")
    canvas.draw_path(
        picture, [(left - 1, top - 1), (left - 1, top + cell * known), (left + cell * known, top + cell * known)], canvas.FAINT_INK
    )
    for column, name in enumerate(classes):
        canvas.draw_upright(picture, name, (left + (column + 0.5) * cell, top + cell * known + 8), _TEXT if cell > 12 else 0.33)
    return picture


def confusion_chart(confusion: np.ndarray, classes: Sequence[str], title: str) -> go.Figure:
    """The same to be explored."""
    confusion = np.asarray(confusion)
    blue = f"rgb({','.join(str(int(part)) for part in _BLUE)})"
    heat = go.Heatmap(z=row_shares(confusion), x=list(classes), y=list(classes), customdata=confusion, zmin=0, zmax=100)
    heat.update(colorscale=[[0, "white"], [1, blue]], colorbar={"title": "% of row"}, xgap=1, ygap=1)
    heat.hovertemplate = "%{y} taken for %{x}: %{customdata} (%{z:.1f} %)<extra></extra>"
    figure = go.Figure(heat)
    figure.update_yaxes(autorange="reversed", title="what it is")
    figure.update_xaxes(title="what it was taken for", tickangle=-60)
    side = max(600, 200 + 24 * len(classes))
    figure.update_layout(template="plotly_white", title=title, font={"size": 14}, height=side, width=side + 100)
    return figure
