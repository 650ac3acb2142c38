"""Draft heads and their small targets, trained from nothing on one machine.

These modules import torch, transformers and speculators, so they run in an environment of
their own (``scripts/train-tiny`` builds it). Nothing else in ``peagle_sm`` imports them.
"""
