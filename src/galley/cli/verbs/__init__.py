"""One file is one verb; `galley --help` lists what is here."""
