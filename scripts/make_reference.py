"""Write the tables of keys in docs/recipe.md from the schema of recipes; a test checks that they are current.

Run `python scripts/make_reference.py` after a change of the schema or of a method's settings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic.fields import FieldInfo

from galley import methods
from galley.recipe import Recipe
from galley.recipe.expected import expected, section_of

PAGE = Path(__file__).parent.parent / "docs" / "recipe.md"
BEGIN, END = "<!-- keys: begin -->", "<!-- keys: end -->"


def keys() -> str:
    """All tables, as Markdown."""
    return "\n".join(_sections()).rstrip() + "\n"


def filled(page: str) -> str:
    """The page with its tables made anew."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{keys()}\n{END}{after}"


def _sections() -> Iterator[str]:
    sections = {name: section_of(field.annotation) for name, field in Recipe.model_fields.items()}
    yield "### The top"
    yield ""
    yield from _table("", Recipe.model_fields)
    for name, section in sections.items():
        if section is None or name == "method":
            continue
        yield f"### {name}"
        yield ""
        yield str(section.__doc__).partition("\n\n")[0]
        yield ""
        yield from _table(f"{name}.", section.model_fields)
    for name in methods.names():
        yield f"### method: {name}"
        yield ""
        yield f"Settings of [{name}](methods/{name}.md), written beside its name: `method: {{name: {name}, ...}}`."
        yield ""
        yield from _table("method.", methods.config(name).model_fields)


def _table(prefix: str, fields: Mapping[str, FieldInfo]) -> Iterator[str]:
    yield "| key | takes | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in fields.items():
        is_section = section_of(field.annotation) is not None
        takes = "section" if is_section else expected(field.annotation, field.metadata)
        meaning = _cell(field.description or "")
        yield f"| `{prefix}{name}` | {_cell(takes)} | {_default(field, is_section)} | {meaning} |"
    yield ""


def _default(field: FieldInfo, is_section: bool) -> str:
    if field.is_required():
        return "**required**"
    if is_section or field.default is None:
        return ""
    return f"`{json.dumps(field.default)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
