"""Counters of a run, in addition to its scores: lost, repaired, held back and adjusted items."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Self

from practicum.core.words import in_number

_LOST = "lost, because the model failed or its answer could not be parsed"
_HELD_BACK = "decision[|s] of the curator not applied"


class Count(StrEnum):
    """Counter of a run. The value of a member is the key in reports and stored JSON, `meaning` describes the counted
    items, and `attention` is true if a user should look into the counted items."""

    meaning: str
    attention: bool
    _forms: str

    def __new__(cls, key: str, meaning: str, attention: bool = False) -> Self:
        member = str.__new__(cls, key)
        member._value_ = key
        member._forms, member.meaning, member.attention = meaning, in_number(0, meaning), attention
        return member

    def text(self, number: int) -> str:
        """Return the count with its meaning, such as `1 answer requested again, because it did not fit its schema`."""
        return f"{number:,} {in_number(number, self._forms)}"

    REPAIRED_OUTPUTS = (
        "repaired_outputs",
        "answer[|s] requested again, because [it|they] did not fit [its|their] schema",
    )
    MENDED_JSON = "mended_json", "answer[|s] whose JSON was repaired before parsing (backslashes, quotes, commas)"
    UNPARSED_OUTPUTS = "unparsed_outputs", "answer[|s] that could not be parsed after three tries", True
    EMPTY_ANSWERS = "empty_answers", "answer[|s] of a model without any text", True
    REFUSED_ANSWERS = "refused_answers", "answer[|s] that a model refused to give", True
    FILTERED_ANSWERS = "filtered_answers", "answer[|s] that the provider's content filter stopped", True
    UNSAID_THOUGHTS = "unsaid_thoughts", "answer[|s] that [consists|consist] of thoughts only", True
    SILENT_CUTS = (
        "silent_cuts",
        "answer[|s] that reached the limit of output tokens before [it|they] had any text (`max_output_tokens`)",
        True,
    )
    CUT_TEXTS = "cut_texts", "plain text[|s] that ended at the limit of output tokens (`max_output_tokens`)", True
    OVERLONG_ANSWERS = (
        "overlong_answers",
        "answer[|s] cut to the limit of output tokens, because the server ignored the limit",
        True,
    )
    LEFT_IN_FLIGHT = (
        "left_in_flight",
        "call[|s] in flight when the run was killed, counted at the highest possible cost",
        True,
    )
    LEFT_IN_BATCHES = (
        "left_in_batches",
        "request[|s] in a batch that goes on at the provider: continue the run, now or within days, to collect "
        "[its|their] answer[|s]",
        True,
    )
    ESTIMATED_USAGE = (
        "estimated_usage",
        "call[|s] whose tokens were estimated, because the server's counts are missing or impossible",
        True,
    )
    FILTERED_REQUESTS = "filtered_requests", "request[|s] that the provider's content filter refused", True
    OVERLONG_REQUESTS = "overlong_requests", "attempt[|s] lost, because the prompt exceeds the model's window", True
    REFUSED_REQUESTS = "refused_requests", "request[|s] that the provider refused", True
    INVALID_SAMPLES = "invalid_samples", "request[|s] for which the provider could not make valid output", True
    REPEATED_SAMPLES = (
        "repeated_samples",
        "answer[|s] requested again, because the provider could not make valid output",
    )
    REFUSED_PARAMETERS = (
        "refused_parameters",
        "parameter[|s] left out or replaced, because a model's server refused [it|them]",
    )
    MOVED_CALLS = "moved_calls", "call[|s] answered by another server, because the first server failed", True
    MENDED_TEXTS = "mended_texts", "answer[|s] in which characters that are not valid in a text were replaced", True
    SHORTENED_PROMPTS = "shortened_prompts", "prompt[|s] shortened to fit the model's window"
    SHORTENED_PLAYBOOKS = (
        "shortened_playbooks",
        "playbook[|s] shown in part, because [it exceeds|they exceed] the model's window",
    )
    UNKNOWN_IDS = "unknown_ids", "cited id[|s] of entries that were not shown to the agent"
    ANNOTATED_UNKNOWN_IDS = "annotated_unknown_ids", "cited id[|s] of entries that were not shown (annotated attempts)"
    UNCLEAR_CHOICES = "unclear_choices", "answer[|s] that name[s|] no choice, or several choices", True
    FAILED_ATTEMPTS = "failed_attempts", "attempt[|s] that failed with an error of the agent", True
    ANNOTATED_FAILED_ATTEMPTS = (
        "annotated_failed_attempts",
        "annotated attempt[|s] that failed with an error of the agent",
    )
    LOST_ATTEMPTS = "lost_attempts", f"attempt[|s] {_LOST}", True
    ANNOTATED_LOST_ATTEMPTS = "annotated_lost_attempts", f"annotated attempt[|s] {_LOST}"
    UNSCORED_ATTEMPTS = "unscored_attempts", "attempt[|s] without a score, because the scorer's model failed", True
    UNREAD_SESSIONS = (
        "unread_sessions",
        "session[|s] split by rules only, because the judge gave no complete answer",
        True,
    )
    UNJUDGED_ATTEMPTS = "unjudged_attempts", "attempt[|s] without a verdict, because the judge failed", True
    STOPPED_PROGRAMS = "stopped_programs", "answer[|s] whose code the sandbox stopped"
    UNTESTABLE_ANSWERS = (
        "untestable_answers",
        "answer[|s] scored 0, because the tests or the pattern of [its|their] task could not be evaluated to the end",
        True,
    )
    UNFENCED_PROGRAMS = (
        "unfenced_programs",
        "answer[|s] whose code ran without full isolation by the sandbox (`PRACTICUM_UNFENCED_CODE`)",
        True,
    )
    TRACE_FAULTS = "trace_faults", "part[|s] of the traces that could not be read", True
    BATCH_LOWERED = "batch_lowered", "time[|s] the batch size was lowered to the number of tasks"
    ATTEMPTED_LOWERED = "attempted_lowered", "time[|s] the setting `attempted` was lowered to the number of tasks"
    REUSED_ATTEMPTS = "reused_attempts", "attempt[|s] reused, because the shown context is unchanged"
    OVERLONG_STEPS = (
        "overlong_steps",
        "network step[|s] left out, because [its|their] prompt exceeds the model's window",
        True,
    )
    OVERLONG_EXPERIENCES = (
        "overlong_experiences",
        "experience[|s] left out, because [it exceeds|they exceed] the model's window",
    )
    DISCARDED_PLANS = (
        "discarded_plans",
        "plan[|s] with fewer than two parts, so that the agent solved the task by itself",
    )
    UNKNOWN_COLLEAGUES = (
        "unknown_colleagues",
        "part[|s] of a plan assigned to other agents in turn, because the named colleague cannot take [it|them]",
    )
    DROPPED_NEEDS = (
        "dropped_needs",
        "result[|s] that a part of a plan needs but cannot get: the result of the part itself, the result of a "
        "missing part, or a result in a cycle of needs",
    )
    UNCITED_BULLETS = "uncited_bullets", "proposed bullet[|s] dropped, because the attempt did not cite [it|them]"
    EXCESS_BULLETS = "excess_bullets", "proposed bullet[|s] dropped beyond the limit (`delta_max`)"
    SHORT_DELTAS = "short_deltas", "task[|s] with fewer bullets than requested (`delta_min`)"
    LOST_PROPOSALS = "lost_proposals", f"proposal[|s] {_LOST}", True
    LOST_REFLECTIONS = "lost_reflections", f"reflection[|s] {_LOST}", True
    LOST_CONTRASTS = "lost_contrasts", f"comparison[|s] of attempts {_LOST}", True
    LOST_EXTRACTIONS = "lost_extractions", f"extraction[|s] of memories {_LOST}", True
    LOST_SUMMARIES = "lost_summaries", f"summar[y|ies] {_LOST}", True
    LOST_STATES = "lost_states", f"update[|s] of the optimizer state {_LOST}", True
    LOST_UPDATES = "lost_updates", f"update[|s] {_LOST}", True
    UNKNOWN_TAGS = "unknown_tags", "vote[|s] of the reflector on entries that were not shown"
    UNKNOWN_SECTIONS = "unknown_sections", "section name[|s] that match[es|] no section, replaced by the first section"
    UNREFLECTED_ATTEMPTS = "unreflected_attempts", "attempt[|s] missing from the reflector's answer about a batch", True
    ACTIONABLE_GAPS = "actionable_gaps", "failure[|s] attributed to a gap in the playbook"
    EXECUTION_VARIANCE = "execution_variance", "failure[|s] attributed to chance in the execution"
    INTRACTABLE_FAILURES = "intractable_failures", "failure[|s] that no entry could have prevented"
    RESTATING_LESSONS = "restating_lessons", "lesson[|s] dropped, because the instructions say the same"
    RULES_WITHOUT_ANSWER = (
        "rules_without_answer",
        "rule[|s] dropped, because [it names|they name] none or all of the choices",
    )
    PRUNED_ENTRIES = "pruned_entries", "entr[y|ies] retired for harmful votes or for the token budget"
    DUPLICATE_ENTRIES = "duplicate_entries", "duplicate entr[y|ies] merged"
    CONTRADICTED_ENTRIES = "contradicted_entries", "entr[y|ies] contradicted by a newer entry with another answer"
    SIMILAR_KEPT_APART = (
        "similar_kept_apart",
        "similar entr[y|ies] kept apart, because a number, a name or an answer differs",
    )
    COMPARED_BY_WORDS = (
        "compared_by_words",
        "new entr[y|ies] compared by words only, because the embedder does not support [its|their] language "
        "(use a multilingual embedder, such as `--embedder openai:text-embedding-3-small`)",
        True,
    )
    KEPT_LESSONS = "kept_lessons", "lesson[|s] added verbatim, because no edit covered [it|them]"
    DROPPED_LESSONS = "dropped_lessons", "lesson[|s] dropped, because no edit covered [it|them]"
    REPEATED_LESSONS = "repeated_lessons", "lesson[|s] shown to the curator a second time"
    HELD_BACK_UNKNOWN_ENTRY = "held_back_unknown_entry", f"{_HELD_BACK}: the entry does not exist"
    HELD_BACK_CHANGED_ENTRY = "held_back_changed_entry", f"{_HELD_BACK}: an earlier decision had changed the entry"
    HELD_BACK_UNKNOWN_LESSON = "held_back_unknown_lesson", f"{_HELD_BACK}: the lesson does not exist"
    HELD_BACK_HELPFUL_ENTRY = "held_back_helpful_entry", f"{_HELD_BACK}: the entry helped as often as it harmed"
    HELD_BACK_NO_TEXT = "held_back_no_text", f"{_HELD_BACK}: the text is missing"
    HELD_BACK_SINGLE_MERGE = "held_back_single_merge", f"{_HELD_BACK}: a merge of fewer than two entries"
    HELD_BACK_ANSWER_CONFLICT = "held_back_answer_conflict", f"{_HELD_BACK}: a merge would join different answers"
    HELD_BACK_PARTIAL_COVER = "held_back_partial_cover", f"{_HELD_BACK}: the entry covers only a part of the lesson"
    HELD_BACK_LOST_DETAIL = "held_back_lost_detail", f"{_HELD_BACK}: a number or a name would be lost"
    MASS_DELETIONS = (
        "mass_deletions",
        "time[|s] that the curator tried to delete more than half of the playbook in one step",
        True,
    )
    HELD_BACK_MASS_DELETION = (
        "held_back_mass_deletion",
        f"{_HELD_BACK}: more than half of the playbook would be deleted in one step (with `--val` and the setting "
        "`gate`, the validation tasks decide)",
        True,
    )
    HELD_EDITS = "held_edits", "edit[|s] held for review"
    KNOWN_TO_REVIEW = (
        "known_to_review",
        "edit[|s] dropped, because a review rejected [it|them] before or [it|they] already wait[s|] for review",
    )
    REFUSED_CALLS = (
        "refused_calls",
        "tool call[|s] refused, because [its|their] arguments contain text that only untrusted sources contain",
        True,
    )
    CONFLICTING_EDITS = "conflicting_edits", "conflicting edit[|s] of parallel groups, reconciled by the curator"
    WIDENED_JOINS = (
        "widened_joins",
        "join[|s] of more than fan_in deltas, because no further level of joins was allowed",
    )
    GROUPS_RAISED = "groups_raised", "step[|s] with more groups than requested, so that no group is larger than fan_in"
    GROUPS_LOWERED = "groups_lowered", "step[|s] with fewer groups than requested, because there were fewer lessons"
    COPIES_LOWERED = "copies_lowered", "step[|s] with fewer copies than requested, because there were fewer groups"
    CLUSTERS_LOWERED = (
        "clusters_lowered",
        "step[|s] with fewer clusters than requested, because there were fewer lessons",
    )
    LESSONS_OUTSIDE_CENTERS = (
        "lessons_outside_centers",
        "lesson[|s] left out, because another lesson is nearer to the center of the cluster",
    )
    EMPTY_SUMMARIES = "empty_summaries", "empty summar[y|ies] of lessons", True
    UNKNOWN_OUTCOMES = (
        "unknown_outcomes",
        "attempt[|s] without lessons, because [its|their] outcome is unknown",
        True,
    )
    EXCESS_MEMORIES = "excess_memories", "extracted memor[y|ies] left out beyond the limit"
    NO_MEMORIES = "no_memories", "attempt[|s] from which no memory was extracted"
    UNKNOWN_INSIGHTS = "unknown_insights", "operation[|s] on insights that do not exist"
    TRIED_CANDIDATES = "tried_candidates", "candidate instruction[|s] tried"
    GATED_DELTAS = "gated_deltas", "step[|s] rejected by the validation gate"
    REDONE_EDITS = "redone_edits", "edit[|s] redone on a newer context"
    REPEATED_ADDITIONS = (
        "repeated_additions",
        "addition[|s] dropped, because another copy of the lesson had already added [it|them]",
    )
    UNTRACKED_RECORDS = "untracked_records", "record[|s] that a tracker (--log) could not send", True


def counted(counts: Mapping[str, int]) -> list[Count]:
    """Return the counters above zero; counters that need attention come first."""
    return [count for count in sorted(Count, key=lambda count: not count.attention) if counts.get(count)]
