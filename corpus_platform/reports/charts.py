"""Small charts as SVG text, and SVG as an image inside Markdown.

An image in a data address runs nothing and needs no network. All text in it is escaped; sizes are
fixed, so that a chart stays below a few kilobytes however much it shows.
"""

import base64
from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

__all__ = ["bar_chart", "image", "line_chart"]

WIDTH, HEIGHT, MARGIN = 480, 200, 36
COLOUR, MARK = "#4363d8", "#c0392b"
MAX_BARS, MAX_POINTS, MAX_LABEL = 24, 64, 12


def bar_chart(bars: Sequence[tuple[str, float]], title: str) -> str:
    """Return bars from left to right, each with its label below and its value above."""
    shown = bars[:MAX_BARS]
    top = max((value for _, value in shown), default=0.0) or 1.0
    step = (WIDTH - 2 * MARGIN) / max(1, len(shown))
    parts = []
    for i, (label, value) in enumerate(shown):
        height = (HEIGHT - 2 * MARGIN) * value / top
        x, y = MARGIN + i * step, HEIGHT - MARGIN - height
        parts.append(
            f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{step - 2:.1f}" height="{height:.1f}"'
            f' fill="{COLOUR}"/>'
        )
        parts.append(_text(x + step / 2, HEIGHT - MARGIN + 13, label[:MAX_LABEL]))
        parts.append(_text(x + step / 2, y - 3, f"{value:,.0f}"))
    return _chart(parts, title)


def line_chart(
    points: Sequence[tuple[float, float]], marks: Sequence[tuple[float, str]], title: str
) -> str:
    """Return a line through points of the unit square, with vertical marks at named places."""
    line = " ".join(f"{_x(x):.1f},{_y(y):.1f}" for x, y in points[:MAX_POINTS])
    return _chart(
        [
            *_axes(),
            f'<polyline points="{line}" fill="none" stroke="{COLOUR}" stroke-width="2"/>',
            *(part for place, label in marks for part in _mark(place, label)),
        ],
        title,
    )


def image(svg: str, alternative: str) -> str:
    """Return an SVG as an image of Markdown; `alternative` is read where it is not shown."""
    data = base64.b64encode(svg.encode()).decode()
    return f"![{alternative}](data:image/svg+xml;base64,{data})"


def _axes() -> Iterator[str]:
    for share in (0.0, 0.5, 1.0):
        yield (
            f'<line x1="{_x(0):.1f}" y1="{_y(share):.1f}" x2="{_x(1):.1f}" y2="{_y(share):.1f}"'
            ' stroke="#ccc"/>'
        )
        yield _text(_x(0) - 14, _y(share) + 3, f"{share:g}")
        yield _text(_x(share), _y(0) + 13, f"{share:g}")


def _mark(place: float, label: str) -> Iterator[str]:
    yield (
        f'<line x1="{_x(place):.1f}" y1="{_y(0):.1f}" x2="{_x(place):.1f}" y2="{_y(1):.1f}"'
        f' stroke="{MARK}" stroke-dasharray="4 3"/>'
    )
    yield _text(_x(place), _y(1) - 4, label[: 2 * MAX_LABEL])


def _x(share: float) -> float:
    return MARGIN + share * (WIDTH - 2 * MARGIN)


def _y(share: float) -> float:
    return HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{_plain(text)}</text>'


def _chart(parts: Sequence[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}"'
        ' font-family="sans-serif" font-size="10">'
        '<rect width="100%" height="100%" fill="#fff"/>'
        f"{_text(WIDTH / 2, 12, title)}{''.join(parts)}</svg>"
    )


def _plain(text: str) -> str:
    """Return the characters of a text that may stand in XML, escaped."""
    return escape("".join(c if c.isprintable() else " " for c in text), {'"': "&quot;"})
