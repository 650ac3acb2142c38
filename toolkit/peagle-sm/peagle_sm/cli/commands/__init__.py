"""One module for each command or family, imported when the command runs."""
