"""`peagle-sm chat`: a conversation in the terminal, or one read from a pipe."""
