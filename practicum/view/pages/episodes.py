"""Page of episodes: attempts and interactions in one list, with filters."""

from __future__ import annotations

import re

from starlette.responses import Response

from practicum.view.read.episodes import ONLY, EpisodeFilter, Listed, episodes, has_attempts, has_interactions
from practicum.view.visit import Visit

KINDS = ("all", "attempts", "interactions")


async def list_episodes(visit: Visit) -> Response:
    """Show the episodes of a space, newest first."""
    kind = visit.query_param("kind") if visit.query_param("kind") in KINDS else "all"
    only = visit.query_param("only") if visit.query_param("only") in ONLY else "all"
    filters = EpisodeFilter(
        kind,
        only,
        visit.query_param("split"),
        visit.query_param("user"),
        visit.query_param("session"),
        visit.query_param("q", 500).strip(),
    )
    before = visit.query_param("before")
    before = before if re.fullmatch(r"a|[ai][0-9]{1,12}", before) else ""

    def read() -> tuple[Listed, list[str], bool, bool]:
        store, story = visit.space.store, visit.story
        attempted = story.part("the attempts", lambda: has_attempts(store)) or False
        listed = story.part("the attempts", lambda: episodes(store, story if attempted else None, filters, before))
        listed = listed or episodes(store, None, filters, before)
        splits = story.part("the attempts", lambda: story.names.splits) or [] if attempted else []
        return listed, splits, attempted, has_interactions(store)

    listed, splits, attempted, served = await visit.run(read)
    return await visit.page(
        "episodes.html", here="Episodes", listed=listed, filters=filters, before=before, splits=splits,
        attempted=attempted, served=served, question=visit.space.question,
    )  # fmt: skip
