"""What a run counts beside its scores: everything that was lost, repaired, held back or adjusted."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

_LOST = "lost, because the model failed or its answer could not be parsed"
_HELD_BACK = "decisions of the curator held back"


class Count(StrEnum):
    """A counter. Its value is the key in reports and stored JSON, `meaning` says what was counted, and `attention`
    marks what a user should look into."""

    meaning: str
    attention: bool

    def __new__(cls, key: str, meaning: str, attention: bool = False) -> Self:
        member = str.__new__(cls, key)
        member._value_ = key
        member.meaning, member.attention = meaning, attention
        return member

    REPAIRED_OUTPUTS = "repaired_outputs", "answers requested again, because they did not fit their schema"
    UNPARSED_OUTPUTS = "unparsed_outputs", "answers that could not be parsed after three tries", True
    CUT_TEXTS = "cut_texts", "plain texts that ended at the limit of output tokens (--max-output-tokens)", True
    SHORTENED_PROMPTS = "shortened_prompts", "prompts shortened to fit the model's window"
    SHORTENED_PLAYBOOKS = "shortened_playbooks", "playbooks shown in part, because they exceed the model's window"
    UNKNOWN_IDS = "unknown_ids", "cited ids that the agent had not been shown"
    ANNOTATED_UNKNOWN_IDS = "annotated_unknown_ids", "cited ids that had not been shown (annotated attempts)"
    UNCLEAR_CHOICES = "unclear_choices", "answers that name none of the choices, or several"
    FAILED_ATTEMPTS = "failed_attempts", "attempts that failed with an error of the agent", True
    ANNOTATED_FAILED_ATTEMPTS = "annotated_failed_attempts", "annotated attempts that failed with an error of the agent"
    LOST_ATTEMPTS = "lost_attempts", f"attempts {_LOST}", True
    ANNOTATED_LOST_ATTEMPTS = "annotated_lost_attempts", f"annotated attempts {_LOST}"
    UNSCORED_ATTEMPTS = "unscored_attempts", "attempts without a score, because the scorer's model failed", True
    UNJUDGED_ATTEMPTS = "unjudged_attempts", "attempts without a verdict, because the judge failed", True
    STOPPED_PROGRAMS = "stopped_programs", "answers whose code the sandbox stopped"
    TRACE_FAULTS = "trace_faults", "parts of the traces that could not be read", True
    BATCH_LOWERED = "batch_lowered", "batch size lowered to the number of tasks"
    ROLLOUTS_LOWERED = "rollouts_lowered", "setting `rollouts` lowered to the number of tasks"
    REUSED_ATTEMPTS = "reused_attempts", "attempts reused, because the context showed the same"
    OVERLONG_STEPS = "overlong_steps", "network steps left out, because their prompt exceeds the model's window", True
    OVERLONG_EXPERIENCES = "overlong_experiences", "experiences left out, because they exceed the model's window"
    UNCITED_BULLETS = "uncited_bullets", "proposed bullets dropped, because the attempt did not cite them"
    LOST_PROPOSALS = "lost_proposals", f"proposals {_LOST}", True
    LOST_REFLECTIONS = "lost_reflections", f"reflections {_LOST}", True
    LOST_CONTRASTS = "lost_contrasts", f"comparisons of attempts {_LOST}", True
    LOST_EXTRACTIONS = "lost_extractions", f"extractions of memories {_LOST}", True
    LOST_SUMMARIES = "lost_summaries", f"summaries {_LOST}", True
    LOST_STATES = "lost_states", f"updates of the optimizer state {_LOST}", True
    LOST_UPDATES = "lost_updates", f"updates {_LOST}", True
    UNKNOWN_TAGS = "unknown_tags", "votes of the reflector for entries that were not shown"
    UNKNOWN_SECTIONS = "unknown_sections", "section names that fit no section, taken as the first one"
    UNREFLECTED_ATTEMPTS = "unreflected_attempts", "attempts missing from the reflector's answer about a batch", True
    ACTIONABLE_GAPS = "actionable_gaps", "failures attributed to a gap in the playbook"
    EXECUTION_VARIANCE = "execution_variance", "failures attributed to chance in the execution"
    INTRACTABLE_FAILURES = "intractable_failures", "failures that no entry could have prevented"
    PRUNED_ENTRIES = "pruned_entries", "entries removed for harmful votes or for the token budget"
    DUPLICATE_ENTRIES = "duplicate_entries", "duplicate entries merged"
    SIMILAR_KEPT_APART = (
        "similar_kept_apart",
        "similar entries that differ in a number, a name or an answer, kept apart",
    )
    KEPT_LESSONS = "kept_lessons", "lessons kept as entries in their own words, because no edit covered them"
    DROPPED_LESSONS = "dropped_lessons", "lessons dropped, because no edit covered them"
    REPEATED_LESSONS = "repeated_lessons", "lessons shown to the curator a second time"
    HELD_BACK_UNKNOWN_ENTRY = "held_back_unknown_entry", f"{_HELD_BACK}: no such entry"
    HELD_BACK_CHANGED_ENTRY = "held_back_changed_entry", f"{_HELD_BACK}: an earlier decision changed the entry"
    HELD_BACK_UNKNOWN_LESSON = "held_back_unknown_lesson", f"{_HELD_BACK}: no such lesson"
    HELD_BACK_HELPFUL_ENTRY = "held_back_helpful_entry", f"{_HELD_BACK}: the entry helped as often as it harmed"
    HELD_BACK_NO_TEXT = "held_back_no_text", f"{_HELD_BACK}: no text given"
    HELD_BACK_SINGLE_MERGE = "held_back_single_merge", f"{_HELD_BACK}: a merge of fewer than two entries"
    HELD_BACK_ANSWER_CONFLICT = "held_back_answer_conflict", f"{_HELD_BACK}: it would join different answers"
    HELD_BACK_PARTIAL_COVER = "held_back_partial_cover", f"{_HELD_BACK}: the entry covers a part of the lesson only"
    HELD_BACK_LOST_DETAIL = "held_back_lost_detail", f"{_HELD_BACK}: a number or a name would be lost"
    CONFLICTING_EDITS = "conflicting_edits", "edits of parallel groups in conflict, reconciled by the curator"
    WIDENED_JOINS = "widened_joins", "joins wider than fan_in, to keep the number of levels"
    GROUPS_RAISED = "groups_raised", "steps with more groups than requested, to keep within fan_in"
    GROUPS_LOWERED = "groups_lowered", "steps with fewer groups than requested, because there were fewer lessons"
    COPIES_LOWERED = "copies_lowered", "steps with fewer copies than requested, because there were fewer groups"
    CLUSTERS_LOWERED = "clusters_lowered", "steps with fewer clusters than requested, because there were fewer lessons"
    LESSONS_OUTSIDE_CENTERS = "lessons_outside_centers", "lessons left out, because no cluster has them as its center"
    EMPTY_SUMMARIES = "empty_summaries", "empty summaries of lessons", True
    UNKNOWN_OUTCOMES = "unknown_outcomes", "attempts that taught nothing, because their outcome is unknown", True
    EXCESS_MEMORIES = "excess_memories", "extracted memories left out beyond the limit"
    NO_MEMORIES = "no_memories", "attempts that gave no memory"
    UNKNOWN_INSIGHTS = "unknown_insights", "operations on insights that do not exist"
    TRIED_CANDIDATES = "tried_candidates", "candidate instructions tried"
    GATED_DELTAS = "gated_deltas", "steps rejected by the validation gate"
    REDONE_EDITS = "redone_edits", "edits redone on a newer context"
    REPEATED_ADDITIONS = "repeated_additions", "additions dropped, because another copy of the lesson had made them"
    UNINDEXED_SEARCH = "unindexed_search", "slow searches without an index: pip install 'practicum[index]'"
    UNTRACKED_RECORDS = "untracked_records", "records that a tracker (--log) could not send", True
