"""Draw a finished run for README and docs: the verdict as an SVG of the terminal page, and its loss curve.

    python scripts/make_pictures.py runs/demo verdict      # docs/images/verdict.svg and docs/images/verdict-loss.png

Both come from the run folder alone, so that a picture never shows what no run did.
"""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from galley import Run
from galley.evaluate import render

IMAGES = Path(__file__).parent.parent / "docs" / "images"
WIDTH = 92
ANSWERS = 2

# rich's own frame, without the fonts that it fetches from elsewhere
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g></g>
</svg>
"""


def draw(folder: Path, name: str) -> list[Path]:
    """Write the pictures of a run and return their paths.

    Args:
        folder: of a run that was judged.
        name: what the files begin with.
    """
    run = Run.open(folder)
    IMAGES.mkdir(parents=True, exist_ok=True)
    verdict = run.verdict
    short = verdict.model_copy(update={"best": verdict.best[:ANSWERS], "worst": verdict.worst[:ANSWERS]})
    page = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    page.print(Text.from_ansi(render(short, width=WIDTH, color=True)))
    svg, png = IMAGES / f"{name}.svg", IMAGES / f"{name}-loss.png"
    title = f"galley eval {run.name}"
    svg.write_text(page.export_svg(title=title, theme=MONOKAI, code_format=SVG, unique_id=name), encoding="utf-8")
    shutil.copyfile(run.folder.result / "loss.png", png)
    return [svg, png]


if __name__ == "__main__":
    draw(Path(sys.argv[1]), sys.argv[2])
