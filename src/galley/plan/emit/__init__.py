"""Write a plan as another tool's own configuration; what that tool cannot say is listed, never dropped."""

from galley.plan.emit.registry import TOOLS, emit

__all__ = ["TOOLS", "emit"]
