"""The seam `sample`: which tasks the next step works on.

A sampler takes the tasks, the steps so far and the run, and yields a `Batch` a step: in plain orders, with failures
replayed, or in batches of a size that is found on the way.
"""

from practicum.blocks.sample.batch_size import controlled
from practicum.blocks.sample.orders import batches, everything, nothing, shuffled_epochs, stream
from practicum.blocks.sample.replay import replayed

__all__ = ["batches", "controlled", "everything", "nothing", "replayed", "shuffled_epochs", "stream"]
