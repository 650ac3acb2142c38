"""Draft heads and their small targets, trained from nothing on one machine.

These modules import torch, transformers and speculators, so they run in an environment of
their own (``scripts/train-tiny`` builds it), without peagle-sm. Only ``held_out`` and ``peagle`` run in the
toolkit's.
"""
