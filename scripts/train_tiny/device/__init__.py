"""Training on an accelerator: the sums of `speculators`, with whole batches of rollouts at once.

`speculators` packs a few documents into one row and takes tens of milliseconds of Python a step, which a
model this small does not need. Checkpoints are in its layout, so either can go on from the other's.
"""
