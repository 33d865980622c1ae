"""Made from the table of operations by tests/serve/test_client_stub.py: do not edit."""

from datetime import date, datetime
from typing import Any, Literal

from practicum.client.link import Link
from practicum.serve import answers

class OperationMethods:
    _link: Link

    async def recall(self, input: str, *, session: str | None = ..., user: str | None = ...) -> answers.ShownText:
        """Recall what is known about a task. The answer is a text for the prompt, and the interaction that begins."""

    def recall_sync(self, input: str, *, session: str | None = ..., user: str | None = ...) -> answers.ShownText:
        """Recall what is known about a task. The answer is a text for the prompt, and the interaction that begins."""

    async def report(self, interaction: str | None = ..., *, session: str | None = ..., score: float | bool | None = ..., target: str | None = ..., comment: str | None = ..., label: str | None = ..., answer: str | None = ..., user: str | None = ...) -> answers.Reported:
        """Report the outcome of an interaction. It is a score, the right answer, or what was wrong. A right answer or a
        comment is a correction, which later requests about the same are shown."""

    def report_sync(self, interaction: str | None = ..., *, session: str | None = ..., score: float | bool | None = ..., target: str | None = ..., comment: str | None = ..., label: str | None = ..., answer: str | None = ..., user: str | None = ...) -> answers.Reported:
        """Report the outcome of an interaction. It is a score, the right answer, or what was wrong. A right answer or a
        comment is a correction, which later requests about the same are shown."""

    async def remember(self, text: str, *, about: str = ..., until: date | str | None = ..., session: str | None = ..., user: str | None = ...) -> answers.Noted:
        """Keep a note for later requests. Requests about its subject are shown the note. A repeated note replaces the
        earlier note."""

    def remember_sync(self, text: str, *, about: str = ..., until: date | str | None = ..., session: str | None = ..., user: str | None = ...) -> answers.Noted:
        """Keep a note for later requests. Requests about its subject are shown the note. A repeated note replaces the
        earlier note."""

    async def interactions(self, session: str | None = ..., *, user: str | None = ..., since: float | datetime | str | None = ..., limit: int = ...) -> answers.Interactions:
        """List the last interactions. The newest comes first."""

    def interactions_sync(self, session: str | None = ..., *, user: str | None = ..., since: float | datetime | str | None = ..., limit: int = ...) -> answers.Interactions:
        """List the last interactions. The newest comes first."""

    async def playbook(self, search: str = ..., *, section: str = ..., skip: int = ..., limit: int = ..., session: str | None = ..., user: str | None = ...) -> answers.PlaybookPage:
        """Search or list the playbook. The playbook has the lessons from earlier work, which are shown to requests."""

    def playbook_sync(self, search: str = ..., *, section: str = ..., skip: int = ..., limit: int = ..., session: str | None = ..., user: str | None = ...) -> answers.PlaybookPage:
        """Search or list the playbook. The playbook has the lessons from earlier work, which are shown to requests."""

    async def history(self, *, session: str | None = ..., user: str | None = ...) -> answers.SpaceHistory:
        """Show the rollouts of versions. The answer also has the results of the rollouts, the alarms, and for each entry
        the mean score of the requests that saw the entry."""

    def history_sync(self, *, session: str | None = ..., user: str | None = ...) -> answers.SpaceHistory:
        """Show the rollouts of versions. The answer also has the results of the rollouts, the alarms, and for each entry
        the mean score of the requests that saw the entry."""

    async def corrections(self, state: Literal['live', 'waiting', 'replaced', 'rejected'] = ..., *, after: int = ..., limit: int = ..., session: str | None = ..., user: str | None = ...) -> answers.CorrectionList:
        """List the corrections and notes in a state. The oldest come first. The answer also has the number of all
        corrections and notes in this state."""

    def corrections_sync(self, state: Literal['live', 'waiting', 'replaced', 'rejected'] = ..., *, after: int = ..., limit: int = ..., session: str | None = ..., user: str | None = ...) -> answers.CorrectionList:
        """List the corrections and notes in a state. The oldest come first. The answer also has the number of all
        corrections and notes in this state."""

    async def review(self, *, session: str | None = ..., user: str | None = ...) -> answers.Waiting:
        """List corrections, notes and learned edits that wait for review. The oldest come first. Of many corrections,
        only the first are listed."""

    def review_sync(self, *, session: str | None = ..., user: str | None = ...) -> answers.Waiting:
        """List corrections, notes and learned edits that wait for review. The oldest come first. Of many corrections,
        only the first are listed."""

    async def decide(self, id: str, *, decision: Literal['approve', 'reject'], reason: str = ..., session: str | None = ..., user: str | None = ...) -> answers.Decided:
        """Approve or reject a review. A correction or a note in effect can be rejected too."""

    def decide_sync(self, id: str, *, decision: Literal['approve', 'reject'], reason: str = ..., session: str | None = ..., user: str | None = ...) -> answers.Decided:
        """Approve or reject a review. A correction or a note in effect can be rejected too."""

    async def edit(self, id: str | None = ..., *, text: str | None = ..., section: str | None = ..., seen: int | None = ..., session: str | None = ..., user: str | None = ...) -> answers.Edited:
        """Change an entry of the playbook, or add an entry. All requests see the new version at once."""

    def edit_sync(self, id: str | None = ..., *, text: str | None = ..., section: str | None = ..., seen: int | None = ..., session: str | None = ..., user: str | None = ...) -> answers.Edited:
        """Change an entry of the playbook, or add an entry. All requests see the new version at once."""

    async def remove(self, id: str, *, seen: int | None = ..., session: str | None = ..., user: str | None = ...) -> answers.Removed:
        """Remove a note, a correction, or an entry of the playbook. Earlier versions still have the entry. Without the
        role review, a key removes only notes of the user that the request names (if the request names no user,
        notes without a user)."""

    def remove_sync(self, id: str, *, seen: int | None = ..., session: str | None = ..., user: str | None = ...) -> answers.Removed:
        """Remove a note, a correction, or an entry of the playbook. Earlier versions still have the entry. Without the
        role review, a key removes only notes of the user that the request names (if the request names no user,
        notes without a user)."""

    async def rollback(self, version: int | None = ..., *, session: str | None = ..., user: str | None = ...) -> answers.LiveVersion:
        """Make a version live for all requests. This ends the rollout of a new version."""

    def rollback_sync(self, version: int | None = ..., *, session: str | None = ..., user: str | None = ...) -> answers.LiveVersion:
        """Make a version live for all requests. This ends the rollout of a new version."""

    async def decide_rollout(self, version: int, *, decision: Literal['live', 'back'], session: str | None = ..., user: str | None = ...) -> answers.LiveVersion:
        """Promote the version of a rollout, or take the version back."""

    def decide_rollout_sync(self, version: int, *, decision: Literal['live', 'back'], session: str | None = ..., user: str | None = ...) -> answers.LiveVersion:
        """Promote the version of a rollout, or take the version back."""

    async def learn(self, *, session: str | None = ..., user: str | None = ...) -> answers.LearningStart:
        """Start a round of learning. The round starts as soon as possible, even with few outcomes."""

    def learn_sync(self, *, session: str | None = ..., user: str | None = ...) -> answers.LearningStart:
        """Start a round of learning. The round starts as soon as possible, even with few outcomes."""

    async def export_user(self, user: str, *, session: str | None = ...) -> answers.UserData:
        """Export all data of a user. This includes the space's entries and records that were learned from the data."""

    def export_user_sync(self, user: str, *, session: str | None = ...) -> answers.UserData:
        """Export all data of a user. This includes the space's entries and records that were learned from the data."""

    async def forget_user(self, user: str, *, alike: bool = ..., session: str | None = ...) -> answers.ForgottenUser:
        """Delete all data of a user for good. The space's entries and records that were learned from the data are deleted
        too."""

    def forget_user_sync(self, user: str, *, alike: bool = ..., session: str | None = ...) -> answers.ForgottenUser:
        """Delete all data of a user for good. The space's entries and records that were learned from the data are deleted
        too."""

    async def keys(self, *, session: str | None = ..., user: str | None = ...) -> answers.KeyList:
        """List the names, spaces and roles of the keys. The store has the digests of the keys, not the keys."""

    def keys_sync(self, *, session: str | None = ..., user: str | None = ...) -> answers.KeyList:
        """List the names, spaces and roles of the keys. The store has the digests of the keys, not the keys."""

    async def add_key(self, name: str, *, space: str = ..., roles: list[Literal['ask', 'report', 'review', 'admin']], days: float | None = ..., per_minute: int | None = ..., session: str | None = ..., user: str | None = ...) -> answers.CreatedKey:
        """Create a key. The answer contains the key, which is shown only once."""

    def add_key_sync(self, name: str, *, space: str = ..., roles: list[Literal['ask', 'report', 'review', 'admin']], days: float | None = ..., per_minute: int | None = ..., session: str | None = ..., user: str | None = ...) -> answers.CreatedKey:
        """Create a key. The answer contains the key, which is shown only once."""

    async def remove_key(self, name: str, *, space: str = ..., session: str | None = ..., user: str | None = ...) -> answers.KeyRemoved:
        """Delete a key. Browsers that signed in with this key are signed out."""

    def remove_key_sync(self, name: str, *, space: str = ..., session: str | None = ..., user: str | None = ...) -> answers.KeyRemoved:
        """Delete a key. Browsers that signed in with this key are signed out."""

    async def spaces(self, *, session: str | None = ..., user: str | None = ...) -> answers.Spaces:
        """List the spaces of the service."""

    def spaces_sync(self, *, session: str | None = ..., user: str | None = ...) -> answers.Spaces:
        """List the spaces of the service."""

    async def add_space(self, name: str, *, session: str | None = ..., user: str | None = ...) -> answers.CreatedSpace:
        """Create a space if it does not exist."""

    def add_space_sync(self, name: str, *, session: str | None = ..., user: str | None = ...) -> answers.CreatedSpace:
        """Create a space if it does not exist."""

    async def remove_space(self, name: str, *, session: str | None = ..., user: str | None = ...) -> answers.SpaceRemoved:
        """Delete a space. Its interactions, outcomes, versions and keys are deleted too."""

    def remove_space_sync(self, name: str, *, session: str | None = ..., user: str | None = ...) -> answers.SpaceRemoved:
        """Delete a space. Its interactions, outcomes, versions and keys are deleted too."""
