"""What a person asks for: the schema, reading with every mistake reported at once, writing, JSON Schema."""

from galley.recipe.json_schema import json_schema, key_lines
from galley.recipe.load import load
from galley.recipe.schema import (
    BudgetSection,
    CheckpointSection,
    DataSection,
    EvaluateSection,
    MethodSection,
    OptimizerName,
    OptimizerSection,
    OverrideSection,
    Precision,
    Recipe,
    ScheduleName,
    Tuning,
)
from galley.recipe.validate import MethodLookup
from galley.recipe.write import dump, extend

__all__ = [
    "BudgetSection",
    "CheckpointSection",
    "DataSection",
    "EvaluateSection",
    "MethodLookup",
    "MethodSection",
    "OptimizerName",
    "OptimizerSection",
    "OverrideSection",
    "Precision",
    "Recipe",
    "ScheduleName",
    "Tuning",
    "dump",
    "extend",
    "json_schema",
    "key_lines",
    "load",
]
