"""Draws the held-out loss of the demo model's runs: plot_demo.py WORK OUT.svg

Bits per byte over millions of training tokens, from the log.jsonl of WORK/ternary and, where it is
there, WORK/float; the dashed line is a 5-gram (demo_ngram.py).
"""
import json
import pathlib
import sys

import numpy as np

from demo_ngram import bits_per_byte
from demo_tokens import documents

WIDTH, HEIGHT, MARGIN = 640, 360, 48
COLOURS = {"ternary": "#c0392b", "float": "#2471a3"}


def curve(folder, scale):
    """[(million tokens, bits per byte)] of the validations."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    points = {x["tokens"] / 1e6: x["validation"] * scale for x in lines if "validation" in x}
    return sorted(points.items())


def text(x, y, what, anchor="middle", colour="#333"):
    return (f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" fill="{colour}" '
            f'font-family="sans-serif" font-size="12">{what}</text>')


def draw(curves, baseline):
    values = [y for points in curves.values() for _, y in points] + [baseline]
    low, high = np.floor(min(values) * 10) / 10, np.ceil(min(max(values), 2.6) * 10) / 10
    last = max(x for points in curves.values() for x, _ in points)
    place = lambda x, y: (MARGIN + x / last * (WIDTH - 2 * MARGIN),
                          HEIGHT - MARGIN - (y - low) / (high - low) * (HEIGHT - 2 * MARGIN))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}">',
           '<rect width="100%" height="100%" fill="white"/>']
    for y in np.arange(low, high + 0.01, 0.2):
        (left, at), right = place(0, y), WIDTH - MARGIN
        out.append(f'<path d="M{left:.0f} {at:.1f}H{right}" stroke="#ddd"/>')
        out.append(text(left - 8, at + 4, f"{y:.1f}", "end"))
    for x in np.linspace(0, last, 5):
        out.append(text(place(x, low)[0], HEIGHT - MARGIN + 18, f"{x:.0f}"))
    out.append(text(WIDTH / 2, HEIGHT - 10, "million tokens"))
    out.append(text(MARGIN, MARGIN - 20, "held-out text, bits per byte", "start"))
    (left, at), right = place(0, baseline), WIDTH - MARGIN
    out.append(f'<path d="M{left:.0f} {at:.1f}H{right}" stroke="#333" stroke-dasharray="5 4"/>')
    out.append(text(right, at - 6, "5-gram", "end"))
    for i, (name, points) in enumerate(curves.items()):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(x, min(y, high)) for x, y in points))
        out.append(f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" '
                   'stroke-width="1.5"/>')
        out.append(text(WIDTH - MARGIN, MARGIN + 16 * i, name, "end", COLOURS[name]))
    return "\n".join([*out, "</svg>"]) + "\n"


def main(work, out):
    size = sum(len(t.encode()) for t in documents(work / "heldout.txt"))
    tokens = len(np.fromfile(work / "heldout.u16", "<u2"))
    scale = tokens / size / np.log(2)  # nats a token to bits per byte
    curves = {name: curve(work / name, scale) for name in COLOURS
              if (work / name / "log.jsonl").exists()}
    out.write_text(draw(curves, bits_per_byte(work)[0]))


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:3]))
