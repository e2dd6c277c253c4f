"""The Python API is there under its names, whatever was imported before."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    "before", ["", "import galley.plan", "from galley.plan import Plan", "from galley import job", "import galley.api"]
)
def test_plan_is_the_function_and_the_package_can_be_imported(before: str) -> None:
    lines = [before, "import galley", "assert galley.plan.__module__ == 'galley.api'", "from galley.plan import decide"]
    lines += ["assert galley.plan.__module__ == 'galley.api'", "assert callable(decide)"]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)
