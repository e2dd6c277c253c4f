"""The JSON Schema of a recipe: for editors, and for forms made from it."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from galley.recipe.expected import expected, section_of
from galley.recipe.schema import SHORT_FORMS, MethodSection, Recipe
from galley.recipe.validate import MethodLookup


def json_schema(methods: MethodLookup) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a recipe file, each method with its own settings."""
    schema: dict[str, Any] = Recipe.model_json_schema(mode="validation")
    definitions: dict[str, Any] = schema["$defs"]
    definitions.pop("MethodSection")
    properties: dict[str, Any] = schema["properties"]
    for section, key in SHORT_FORMS.items():
        if section == "method":
            continue
        mapping = properties[section]
        texts = definitions[mapping["$ref"].rpartition("/")[2]]["properties"][key]
        texts = next((kind for kind in texts.get("anyOf", []) if kind.get("type") != "null"), texts)
        short = {k: v for k, v in texts.items() if k not in ("default", "title", "description")}
        properties[section] = {**_facts(mapping), "anyOf": [short, {"$ref": mapping["$ref"]}]}
    properties["method"] = {**_facts(properties["method"]), "anyOf": [{"enum": list(methods.names())}]}
    for name in methods.names():
        definitions[f"method-{name}"] = _method_schema(name, methods, definitions)
        properties["method"]["anyOf"].append({"$ref": f"#/$defs/method-{name}"})
    # An agent's network may be left out; everything else starts from a model.
    schema |= {"if": {"properties": {"task": {"const": "control"}}}, "else": {"required": ["model"]}}
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Galley recipe"
    return schema


def _facts(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key == "description"}


def _method_schema(name: str, methods: MethodLookup, definitions: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = methods.config(name).model_json_schema(
        mode="validation", ref_template=f"#/$defs/method-{name}-{{model}}"
    )
    for inner, definition in schema.pop("$defs", {}).items():
        definitions[f"method-{name}-{inner}"] = definition
    properties = {"name": {"const": name, "description": f"the method {name}"}, **schema.get("properties", {})}
    return {**schema, "title": name, "properties": properties, "required": ["name", *schema.get("required", [])]}


def key_lines(methods: MethodLookup) -> list[str]:
    """Every key with what it takes and what it means, one a line, for reading."""
    entries: list[tuple[str, FieldInfo]] = []
    for name, field in Recipe.model_fields.items():
        section = section_of(field.annotation)
        entries.append((name, field))
        if section is not None and section is not MethodSection:
            entries += [(f"{name}.{key}", inner) for key, inner in section.model_fields.items()]
    for method in methods.names():
        for key, inner in methods.config(method).model_fields.items():
            entries.append((f"method.{key} ({method})", inner))
    wide = max(len(key) for key, _ in entries)
    return [f"{key:<{wide}}  {_meaning(field)}" for key, field in entries]


def _meaning(field: FieldInfo) -> str:
    what = "" if section_of(field.annotation) is not None else f" [{expected(field.annotation, field.metadata)}]"
    return f"{field.description or ''}{what}"
