"""Episodes: attempts and interactions in one list, with filters."""

from __future__ import annotations

import re

from starlette.responses import Response

from practicum.view.read.episodes import ONLY, EpisodeFilter, Listed, episodes, has_attempts, has_interactions
from practicum.view.visit import Visit

KINDS = ("all", "attempts", "interactions")


async def list_episodes(visit: Visit) -> Response:
    """The episodes of a space, the newest first."""
    kind = visit.asked("kind") if visit.asked("kind") in KINDS else "all"
    only = visit.asked("only") if visit.asked("only") in ONLY else "all"
    wanted = EpisodeFilter(
        kind, only, visit.asked("split"), visit.asked("user"), visit.asked("session"), visit.asked("q", 500).strip()
    )
    before = visit.asked("before")
    before = before if re.fullmatch(r"a|[ai][0-9]{1,12}", before) else ""

    def read() -> tuple[Listed, list[str], bool, bool]:
        store, story = visit.space.store, visit.story
        tried = story.part("the attempts", lambda: has_attempts(store)) or False
        listed = story.part("the attempts", lambda: episodes(store, story if tried else None, wanted, before))
        listed = listed or episodes(store, None, wanted, before)
        splits = story.part("the attempts", lambda: story.names.splits) or [] if tried else []
        return listed, splits, tried, has_interactions(store)

    listed, splits, tried, asked = await visit.run(read)
    return await visit.page(
        "episodes.html", here="Episodes", listed=listed, wanted=wanted, before=before, splits=splits, tried=tried,
        served=asked, question=visit.space.question,
    )  # fmt: skip
