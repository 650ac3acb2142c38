"""Faults on demand, to test clients against: `peagle-sm local fault`.

A fault is a pure transformation of an answer's bytes (`stream`), or an answer in the model's place
(`refusals`); the book chooses the fault for a call, and `PartWriter` carries it out on a connection.
"""

from sagemaker_local.faults.book import Entry, FaultBook, Strike
from sagemaker_local.faults.fault import Fault, parse
from sagemaker_local.faults.kinds import KINDS, OPERATIONS
from sagemaker_local.faults.refusals import ModelFailure, Refusal, refusal_of, request_of
from sagemaker_local.faults.wires import BareWire, EventStreamWire
from sagemaker_local.faults.writing import (
    ClientLeft,
    EndedByFault,
    PartWriter,
    hang_up,
    sent_whole,
    silence_of,
)

__all__ = [
    "KINDS",
    "OPERATIONS",
    "BareWire",
    "ClientLeft",
    "EndedByFault",
    "Entry",
    "EventStreamWire",
    "Fault",
    "FaultBook",
    "ModelFailure",
    "PartWriter",
    "Refusal",
    "Strike",
    "hang_up",
    "parse",
    "refusal_of",
    "request_of",
    "sent_whole",
    "silence_of",
]
