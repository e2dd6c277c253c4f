from __future__ import annotations

import pytest

from galley import job
from galley.plan.control_page import explain_control


@pytest.mark.parametrize(("steps", "warned"), [(500, True), (2000, False)])
def test_a_plan_in_which_nothing_is_learned_says_so(steps: int, warned: bool) -> None:
    asked = {
        "task": "control",
        "data": "gym:CartPole-v1",
        "method": {"name": "dqn", "learning_starts": 1000},
        "budget": {"steps": steps},
    }
    page = explain_control(job.plan(job.read_recipe(asked)), width=120, color=False)  # type: ignore[arg-type]
    said = "nothing is learned: method.learning_starts is 1,000, and there are 500 steps"
    assert (said in page) is warned
