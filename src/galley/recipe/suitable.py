"""Keys that say nothing for a task: they are refused, since an ignored setting is a wrong result."""

from __future__ import annotations

from collections.abc import Iterator

from galley.recipe.problems import Path, Problem, show
from galley.recipe.schema import Recipe

_NOT_FOR_CONTROL: dict[Path, str] = {
    ("budget", "epochs"): "an agent has no rows to pass over; set budget.steps (environment steps) or budget.minutes",
    ("budget", "tokens"): "an agent learns no tokens; set budget.steps (environment steps) or budget.minutes",
    ("budget", "price_per_hour"): "how long an agent trains is not predicted",
    ("data", "columns"): "an environment has no columns",
    ("data", "system"): "an environment has no conversations",
    ("data", "split"): "an environment has no splits",
    ("data", "rows"): "an environment has no rows",
    ("data", "format"): "the kind of an episode file is told by its suffix",
    ("evaluate", "held_out"): "nothing is held out: evaluations play on environments of their own",
    ("evaluate", "rows"): "evaluations count episodes; set evaluate.episodes",
    ("evaluate", "scorer"): "an agent is judged by its return",
    ("evaluate", "max_new_tokens"): "an agent writes nothing",
}
_KEPT_OVERRIDES = ("device", "threads")
_ONLY_FOR_CONTROL: dict[Path, str] = {
    ("evaluate", "episodes"): "only task control plays episodes",
}
_GOALS = {"control": ("return",), "classify": ("loss", "accuracy")}


def unsuitable(recipe: Recipe) -> Iterator[Problem]:
    """Settings that nothing would read for this task."""
    table = _NOT_FOR_CONTROL if recipe.task == "control" else _ONLY_FOR_CONTROL
    for path, why in table.items():
        section, key = (str(part) for part in path)
        if key in getattr(recipe, section).model_fields_set:
            yield Problem(path, f"does not go with task {recipe.task}: {why}")
    if recipe.task == "control":
        for key in sorted(recipe.optimizer.model_fields_set):
            why = f"each method has its own optimisers; set method.{key} where it has one"
            yield Problem(("optimizer", key), f"does not go with task control: {why}")
        for key in sorted(recipe.override.model_fields_set - set(_KEPT_OVERRIDES)):
            why = f"only override.{' and override.'.join(_KEPT_OVERRIDES)} do"
            yield Problem(("override", key), f"does not go with task control: {why}")
    goals = _GOALS.get(recipe.task, ("loss",))
    for name in recipe.budget.until:
        if name not in goals:
            what = f"is no measure of task {recipe.task}; expected {' or '.join(goals)}"
            yield Problem(("budget", "until", name), f"{show(name)} {what}")
    if recipe.task != "control" and recipe.budget.until and recipe.evaluate.held_out == 0:
        yield Problem(("budget", "until"), "nothing is evaluated with evaluate.held_out: 0")
