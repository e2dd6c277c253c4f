"""The `galley` command: verbs, one file each, with no logic of their own."""
