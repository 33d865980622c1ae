"""practicum in an engineer's own program: what was learned comes into prompts, and what came of answers goes back.

from practicum import client

with client.open("http://127.0.0.1:8700", space="support") as space:   # or a folder: no service is needed
    llm = space.wrap(OpenAI())
    answer = llm.chat.completions.create(model=..., messages=...)
    space.report_sync(client.interaction(), target="the right answer")
"""

from practicum.client.blocks import ReportFields, SessionBlock, TaskBlock, interaction
from practicum.client.space import SpaceClient, open

__all__ = ["ReportFields", "SessionBlock", "SpaceClient", "TaskBlock", "interaction", "open"]
