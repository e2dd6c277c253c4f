"""Small models that come with Galley: a file each, named in recipes by the file's name."""
