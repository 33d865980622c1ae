"""The cases of worked examples: from a library and a shop, so that they give nothing away about the tasks."""

from __future__ import annotations

LIBRARY = """\
# What the agent is told
Say which desk of the library a visitor needs. Desks: Red, Green, Blue."""

SHOP = """\
# What the agent is told
Answer with a number."""

LAMP = """\
Task: hi, the reading lamp at my seat keeps flickering, it drives me mad
Answer: Red
Feedback: The answer is wrong. The right answer is: Blue"""

ATLAS = """\
Task: Could I keep the atlas for two more weeks?
Answer: Blue
Feedback: The answer is wrong. The right answer is: Green"""

COAT = "Task: A coat of 80 is sold with 25% off. What is left to pay?"
