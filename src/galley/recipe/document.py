"""Read YAML 1.2 into plain values, remembering the line of each, so that mistakes can be pointed at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from galley.base import GalleyError
from galley.recipe.problems import Path, Problem, dotted, nearest, show

if TYPE_CHECKING:
    from ruamel.yaml.nodes import MappingNode, Node, ScalarNode

MAX_VALUES = 20_000
"""More than any honest recipe holds; aliases of aliases reach it within a few lines."""


@dataclass
class Document:
    """A recipe as written.

    Args:
        name: file name in messages, or `recipe` for a mapping.
        values: the top-level mapping.
        places: for each path, where it was written: `faq.yaml:3`, or the override's own text.
    """

    name: str
    values: dict[str, Any] = field(default_factory=dict)
    places: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def place(self, path: Path) -> str:
        """Where the path, or the nearest mapping around it, was written."""
        return self.places.get(self._written(path), self.name)

    def lines(self) -> list[str]:
        """All problems as `place: key: what`, in the order in which their keys were written."""
        order = {path: number for number, path in enumerate(self.places)}
        ordered = sorted(dict.fromkeys(self.problems), key=lambda problem: order.get(self._written(problem.path), -1))
        return [": ".join(part for part in (self.place(p.path), dotted(p.path), p.what) if part) for p in ordered]

    def _written(self, path: Path) -> Path:
        """The path as known: itself, else one inside it, else the nearest around it, else nothing."""
        if path in self.places:
            return path
        inside = (known for known in self.places if known[: len(path)] == path)
        around = (path[:end] for end in range(len(path) - 1, 0, -1) if path[:end] in self.places)
        return next(inside, next(around, ()))


def from_file(path: FilePath) -> Document:
    """Read a recipe file.

    Raises:
        GalleyError: `recipe-not-found`, or `recipe-syntax` when it is no YAML mapping.
    """
    name = str(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise GalleyError(
            "recipe-not-found", f"{name}: {error.strerror or error}", hint=_not_found_hint(path)
        ) from error
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise GalleyError("recipe-syntax", f"{name}: not UTF-8 text ({error})", hint="save it as UTF-8") from error
    return from_text(text, name)


def _not_found_hint(path: FilePath) -> str:
    folder = path if path.is_dir() else path.parent
    names = sorted(p.name for p in folder.glob("*.y*ml")) if folder.is_dir() else []
    near = nearest(path.name, names)
    if near is not None:
        return f"did you mean {folder / near}?"
    if names:
        return f"recipes in {folder}: {', '.join(names[:8])}"
    return "`galley init` writes a first recipe"


def from_text(text: str, name: str) -> Document:
    """Read the text of a recipe.

    Raises:
        GalleyError: `recipe-syntax`.
    """
    document = Document(name)
    node = _compose(text, name)
    if node is None:
        raise GalleyError(
            "recipe-syntax", f"{name}: the recipe is empty", hint="three lines are enough: task, model, data"
        )
    values = _Builder(document).value(node, ())
    if not isinstance(values, dict):
        raise GalleyError(
            "recipe-syntax",
            f"{name}: a recipe is a mapping of keys to values, not {show(values)}",
            hint="three lines are enough: task, model, data",
        )
    document.values = values
    return document


def scalar_or_flow(text: str) -> Any:
    """The value of an override: a YAML scalar, list or mapping in one line.

    Raises:
        GalleyError: `recipe-syntax`.
    """
    node = _compose(text, "override")
    if node is None:
        return None
    document = Document("override")
    value = _Builder(document).value(node, ())
    if document.problems:
        raise GalleyError("recipe-syntax", document.problems[0].what)
    return value


def _compose(text: str, name: str) -> Node | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.allow_duplicate_keys = True  # we report them ourselves, with both lines
    try:
        node: Node | None = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark is not None else name
        what = ", ".join(x for x in (error.problem, error.context) if x)
        raise GalleyError("recipe-syntax", f"{place}: {what}", hint=_syntax_hint(text, what)) from error
    except (YAMLError, ValueError) as error:
        first = str(error).strip().splitlines()[0]
        raise GalleyError("recipe-syntax", f"{name}: {first}") from error
    except RecursionError as error:
        raise GalleyError("recipe-syntax", f"{name}: nested too deeply") from error
    return node


def _syntax_hint(text: str, what: str) -> str:
    if "\t" in text and ("\\t" in what or "tab" in what.lower()):
        return "indent with spaces, not with tabs"
    if "mapping values are not allowed" in what:
        return "put quotes around a value that holds a colon followed by a space"
    if "expected a single document" in what:
        return "keep one recipe in a file"
    return "check indentation, quotes and brackets near this place"


class _Builder:
    """Turns nodes into values, noting places and problems in the document."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0

    def value(self, node: Node, path: Path) -> Any:
        from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

        self.count += 1
        if self.count > MAX_VALUES or len(path) > 100:
            raise GalleyError("recipe-syntax", f"{self.document.name}: too many values, or an alias that holds itself")
        if path:
            self.document.places.setdefault(path, self.line(node))
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(child, (*path, number)) for number, child in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return self.scalar(node, path)

    def mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node.value, str) or _is_broken(key_node.value):
                here = (*path, "?")  # YAML's own sign for a key that is no word
                self.document.places.setdefault(here, self.line(key_node))
                kinds = {MappingNode: "a mapping", SequenceNode: "a list"}
                what = f"a key is a word, not {kinds.get(type(key_node), 'half a character')}"
                self.document.problems.append(Problem(here, what))
                continue
            key = key_node.value
            here = (*path, key)
            if key in values:
                first = self.document.places[here]
                self.document.problems.append(Problem(here, f"is written twice, here and at {first}; keep one"))
                self.document.places[here] = self.line(key_node)
                continue
            self.document.places[here] = self.line(key_node)
            values[key] = self.value(value_node, here)
        return values

    def scalar(self, node: ScalarNode, path: Path) -> Any:
        kind = str(node.tag or "").rpartition(":")[2]
        text: str = node.value
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return text.lower() == "true"
            if kind == "int":
                return int(text, 0) if text.lstrip("+-")[:2].lower() in ("0x", "0o", "0b") else int(text)
            if kind == "float":
                return float(text.replace(".inf", "inf").replace(".nan", "nan").replace(".Inf", "inf"))
        except ValueError:
            return text
        if str(node.tag).startswith("!"):
            self.document.problems.append(Problem(path, f"the tag {node.tag} is not allowed; write a plain value"))
        if _is_broken(text):
            self.document.problems.append(Problem(path, f"{show(text)} holds half a character (a lone surrogate)"))
        return text

    def line(self, node: Node) -> str:
        return f"{self.document.name}:{node.start_mark.line + 1}"


def _is_broken(text: str) -> bool:
    """Whether the text holds a lone surrogate, which no file and no terminal takes."""
    return any("\ud800" <= sign <= "\udfff" for sign in text)


def from_mapping(values: Mapping[str, Any]) -> Document:
    """A recipe given as a mapping from Python: paths become text, tuples become lists."""
    return Document("recipe", _as_plain(values))


def _as_plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_plain(item) for item in value]
    return str(value) if isinstance(value, FilePath) else value
