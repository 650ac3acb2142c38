"""The template language: sections, functions, parameters, conditions. Pure."""
