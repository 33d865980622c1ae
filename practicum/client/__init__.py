"""Python client: adds learned text to the prompts of a program, and reports the outcomes of its answers.

from practicum import client

with client.open("http://127.0.0.1:8700", space="support") as space:   # or a folder, without a service
    llm = space.wrap(OpenAI())
    answer = llm.chat.completions.create(model=..., messages=...)
    space.report_sync(client.interaction(), target="the right answer")
"""

from practicum.client.blocks import ReportFields, SessionBlock, TaskBlock, interaction
from practicum.client.space import SpaceClient, open

__all__ = ["ReportFields", "SessionBlock", "SpaceClient", "TaskBlock", "interaction", "open"]
