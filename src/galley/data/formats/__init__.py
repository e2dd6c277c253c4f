"""Layouts of examples, one file each; `galley.data.source.FORMATS` finds them by name."""
