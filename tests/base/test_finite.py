from __future__ import annotations

import json

from galley.base.finite import finite


def test_what_json_cannot_hold_is_null() -> None:
    given = {"a": float("nan"), "b": [1.5, float("-inf")], "c": {"d": (1, True, "x")}}
    assert finite(given) == {"a": None, "b": [1.5, None], "c": {"d": [1, True, "x"]}}
    json.dumps(finite(given), allow_nan=False)
