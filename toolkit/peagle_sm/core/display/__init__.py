"""Text and HTML of what a notebook or a report shows. Pure."""
