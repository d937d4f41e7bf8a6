"""What each processor of a chain changed at each step, recorded and shown as a page, a plot or plain data.

::

    traced = TracedChain(chain)                 # a chain like any other
    generated = Generator(model, traced)(prompts)
    traced.record.attach(generated)             # which sequences came of it
    traced.record.save("trace.html")            # one page, nothing else needed

:class:`RecordedChain` records the distribution that each token was chosen from, in whatever engine calls the chain.
"""

from __future__ import annotations

from logitloom.trace.distribution import Change, Distribution
from logitloom.trace.record import Record
from logitloom.trace.recorded_chain import RecordedChain
from logitloom.trace.step_tree import Step, TracedSequence
from logitloom.trace.traced_chain import TracedChain

__all__ = ["Change", "Distribution", "Record", "RecordedChain", "Step", "TracedChain", "TracedSequence"]
