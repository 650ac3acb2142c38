"""`peagle-sm chat`: a conversation in the terminal or from a pipe."""
