"""`my_model.py:Net`: a user's own nn.Module. Naming the file is the permission to run it, once it is loaded."""

from __future__ import annotations

import re

from galley.models.spec import ModelSpec
from galley.models.user_module import check_class, split_reference

_FORM = re.compile(r".+\.py(:[A-Za-z_]\w*)?")


class FileReference:
    """`file.py:Class`."""

    order = 15
    form = "file.py:Class (your own nn.Module)"

    def accepts(self, reference: str) -> bool:
        """A Python file, with or without a class."""
        return _FORM.fullmatch(reference) is not None

    def resolve(self, reference: str) -> ModelSpec:
        """Kind and class name; the file is parsed but not run, so sizes are not known yet."""
        path, name = split_reference(reference)
        check_class(path, name)
        return ModelSpec(
            reference=reference, kind="module", family=name, source="file", config={"file": str(path), "class": name}
        )


REFERENCE = FileReference()
