"""The card of a policy: what it does, how well, how it was trained and how to use it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from galley.base import format_duration
from galley.recipe.write import dump

if TYPE_CHECKING:
    from galley.evaluate.verdict import Verdict
    from galley.plan.control import ControlPlan
    from galley.recipe.schema import Recipe
    from galley.runs import RunFolder


def write_control_card(folder: RunFolder, asked: Recipe, decided: ControlPlan, verdict: Verdict | None) -> None:
    """Write result/README.md."""
    text = "\n".join(_lines(folder, asked, decided, verdict)) + "\n"
    (folder.result / "README.md").write_text(text, encoding="utf-8")


def _lines(folder: RunFolder, asked: Recipe, decided: ControlPlan, verdict: Verdict | None) -> Iterator[str]:
    yield from ("---", f"tags: [galley, reinforcement-learning, {decided.method}]", "---", f"# {folder.name}", "")
    yield f"A policy for `{decided.data}`, learned with `{decided.method}`."
    yield from ("", "## Is it better?", "")
    yield verdict.sentence if verdict is not None else "It was not judged by playing."
    if (folder.result / "returns.png").is_file():
        yield from ("", "![return over the steps](returns.png)")
    last = folder.newest_metrics()
    yield from ("", "## Training", "", "| | |", "|---|---|")
    yield f"| environment steps | {int(last.get('step', 0)):,} |"
    yield f"| updates | {int(last.get('updates', 0)):,} |"
    yield f"| time | {format_duration(float(last.get('seconds', 0.0)))} |"
    yield f"| seed | {decided.seed} |"
    yield from ("", "The recipe:", "", "```yaml", dump(asked).rstrip(), "```")
    yield from ("", "## Use", "", "```sh", f"galley watch {folder.name}      # plays, and records a picture", "```", "")
    yield from ("```python", "from galley.models.control.results import Policy", "")
    yield from ('policy = Policy.open("result")', "action = policy.act(observation)", "```", "")
    yield "The folder holds the whole decision function: normalisation, network, clipping and unscaling."
