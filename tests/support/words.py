"""The lint of the language: words and phrases that the docstrings, comments, messages and names avoid, with reasons.

`python tests/support/words.py PATH...` lists every use, by file and line. tests/test_words.py runs it in the suite."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

WORDS = {
    # Words of a tale: software is described by what it does now.
    r"told": "name the operation: report, pass, distinguish, identify",
    r"said": "name the source: the message, the report, the answer",
    r"heard": "name the operation: receive",
    r"tells?|telling": "name the operation: report, show, distinguish, identify",
    r"anew": "write 'again', or name what is new",
    r"beside|besides": "write 'next to', 'with' or 'also'",
    r"meanwhile": "name the time: during the call, until the lock is released",
    r"nobody|somebody": "name the actor: no client, a user, another process",
    r"whoever|whomever|whatever|whichever": "name the actor or the thing: any client, any value",
    r"wherever|whence|thereby|therein|thereof|whereby|hence|lest|seldom|hardly|ought": "write the plain word",
    r"(?<!-)stands?|stood|standing": "write 'is', 'is stored', 'appears'",
    r"gone": "write 'removed', 'deleted' or 'missing'",
    r"the house": "write 'practicum' or 'the package'",
    r"what c(?:a|o)mes? of|came of": "write 'outcome' or 'result'",
    # Definitions by what a thing is not.
    r"(?:is|are|was|were|be) no(?! longer| more)": "write 'is not a ...', '... does not exist' or 'no ...'",
    r"another one|the other one": "repeat the noun",
    r"nothing but|anything but": "write 'only'",
    r"but for|all but": "write 'except'",
    r"at all": "drop it",
}
"""Phrase (a regular expression, matched at word boundaries in any case) → what to write in place of it, everywhere."""

CLAUSES = {
    # Nouns that a clause replaces.
    r"(?:of|for|by|from|with|in|on|than|as|about|under|after|before|like|and|or) what(?! to )": "use a noun",
    r"what (?:is|are|was|were|has|have|had|does|did|it|they)": "use a noun for the clause",
    r"(?:of|for|by|from|with|to|and|or) who(?:m|se)?": "use a noun: the caller, the author, the owner",
    r"of which": "make two sentences, or name the noun",
    r"those (?:that|which|of|who|in|with|without)": "repeat the noun",
    r"(?:the|that) one (?:that|of|which|who|in|with)|ones that|one that": "repeat the noun",
    r"of (?:ours|theirs|its own|their own|our own)|our own": "name the owner: practicum's, the caller's",
    # Words that a reader has to decode.
    r"so many|so much|as many|as much": "name the number",
    r"as (?:it is|they are|it was|they were)": "write 'unchanged'",
    r"(?<!-)alone": "write 'only' or 'by itself'",
    r"rests? (?:up)?on": "write 'depends on'",
    r"where there (?:is|are)|if there (?:is|are) (?:one|none|any|some)": "write 'if present'",
    r"let (?:it|them|its|their|a|the|every|each|no)\b": "name the operation",
}
"""Phrases that definitions avoid: docstrings, comments and messages. A manual may use them."""

OPENINGS = {
    "What": "open with the noun that it is",
    "Who": "open with the noun that it is",
    "Whose": "open with the noun that it is",
    "Which": "open with the noun that it is",
    "Those": "open with the noun that it is",
    "Let": "name the operation",
}
"""First word of a docstring or comment → what to write in place of it."""

NAMES = {
    "told": "what it is: report, note",
    "said": "what it is: text, message, report",
    "heard": "what it is: received",
    "anew": "what it is: fresh, again",
    "beside": "what it is: neighbor, context",
    "stands": "what it is: state, is_...",
    "found": "what it is: matches, result, value, the noun",
    "known": "what it is: previous, recorded, stored, the noun",
    "what": "what it is: subject, kind, the noun",
    "whose": "what it is: owner",
    "who": "what it is: actor, caller, user",
    "which": "what it is: selection, the noun",
    "gone": "what it is: removed, missing, deleted",
    "ours": "what it is: local, own, the noun",
    "theirs": "what it is: remote, other, the noun",
    "meant": "what it is: intended, the noun",
    "given": "what it is: argument, override, the noun",
    "made": "what it is: created, result, the noun",
    "wanted": "what it is: requested, required, expected, the noun",
    "kept": "what it is: stored, retained, remaining, the noun",
}
"""Word of an identifier → what a name says in place of it."""


FOREIGN = {"connection_made"}
"""Names that other packages require."""


@dataclass(frozen=True)
class Use:
    """A use of a word that the language avoids."""

    path: Path
    line: int
    phrase: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.phrase!r} ({self.advice}): {self.text}"


_PHRASES = [(re.compile(rf"(?<!\w)(?:{pattern})\b", re.I), advice) for pattern, advice in {**WORDS, **CLAUSES}.items()]


_COMMENT = re.compile(rf"#(?: *(?:{'|'.join(OPENINGS)})|.*(?<!\w)(?:{'|'.join([*WORDS, *CLAUSES])}))\b", re.I)


def _in_prose(path: Path, line: int, text: str, *, opens: bool = False) -> Iterator[Use]:
    for pattern, advice in _PHRASES:
        for match in pattern.finditer(text):
            around = " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())
            yield Use(path, line + text.count("\n", 0, match.start()), match.group(), around, advice)
    first = re.match(r"[#\s]*(\w+)", text)
    if opens and first and first.group(1) in OPENINGS:
        yield Use(path, line, first.group(1), " ".join(text.split())[:80], OPENINGS[first.group(1)])


def _in_names(path: Path, nodes: Sequence[ast.AST]) -> Iterator[Use]:
    for node in nodes:
        name, line = "", getattr(node, "lineno", 1)
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                name = node.name
            case ast.arg():
                name = node.arg
            case ast.Name(ctx=ast.Store()):
                name = node.id
            case ast.Attribute(ctx=ast.Store()):
                name = node.attr
            case ast.ExceptHandler() | ast.MatchAs() | ast.MatchStar():
                name = node.name or ""
            case ast.alias():
                name = node.asname or ""
        for word in name and re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()):
            if word in NAMES and name not in FOREIGN:
                yield Use(path, line, name, name, NAMES[word])


MODEL_TEXTS: dict[str, tuple[str, ...]] = {
    "bench/poison_bench.py": ("carry_out",),
    "agents/chat.py": (),
    "agents/environment.py": (),
    "agents/frameworks.py": ("LEARNED", "CITE"),
    "agents/network.py": (),
    "agents/tools.py": (),
    "core/playbook.py": ("export",),
    "core/shingles.py": ("_FUNCTION",),
    "core/words.py": ("_WRONG",),
    "engine/framing.py": (),
    "engine/place.py": ("agent_instructions",),
    "engine/scorers.py": (),
    "plugins/environments/appworld/agent.py": ("execute",),
    "plugins/environments/appworld/tasks.py": ("INSTRUCTIONS",),
    "plugins/environments/datasets.py": ("Srdd",),
    "serve/answers.py": ("PlaybookPage",),
    "serve/mcp_opening.py": ("INSTRUCTIONS",),
    "serve/operations.py": ("recall", "report", "Query"),
    "session/corrections.py": ("Correction",),
    "tasks/sandbox/judge_tests.py": ("Malformed", "ask", "call_back", "read", "Code"),
    "tasks/sandbox/runner.py": (),
    "tasks/scoring/coverage.py": ("IRREGULAR",),
    "tasks/scoring/rules.py": ("regex",),
}
"""Definitions with texts that models read (prompts, tools, notes of scores), which are measured and so unchanged; or
with lists of words. An empty tuple: all strings of the file except docstrings and errors."""

PROMPTS = (
    "methods/", "plugins/rivals/", "engine/judge.py", "bench/", "testing.py", "agents/annotations.py", "examples/",
)  # fmt: skip
"""Where all texts are prompts except those of errors. In bench/ and testing.py only constants are."""


def _outputs(root: Path) -> frozenset[str]:
    """Return the names of all classes of structured output, whose docstrings and descriptions are sent to models."""
    bases: dict[str, set[str]] = {}
    for path in (root / "practicum").rglob("*.py"):
        for name, of in re.findall(r"^class (\w+)\(([^)]*)\)", path.read_text(encoding="utf-8"), re.M):
            bases.setdefault(name, set()).update(re.findall(r"\w+", of))
    names = {"Output"}
    while more := {name for name, of in bases.items() if of & names} - names:
        names |= more
    return frozenset(names)


def _constants(node: ast.AST) -> set[int]:
    """Return the identities of all constants in a tree."""
    return {id(one) for one in ast.walk(node) if isinstance(one, ast.Constant)}


def _for_models(path: str, tree: ast.Module, nodes: Sequence[ast.AST], outputs: frozenset[str]) -> set[int]:
    """Return the identities of the constants of a file that models read."""
    names = next((names for end, names in MODEL_TEXTS.items() if path.endswith(end)), None)
    documented = {one for node in nodes for one in _plain(node)}
    exempt = _constants(tree) - documented if names == () else set[int]()
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Assign, ast.AnnAssign, ast.Call)
    for node in nodes:
        if not isinstance(node, definitions):
            continue
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        called = getattr(getattr(node, "func", None), "id", None)
        own = {getattr(node, "name", None), called, *(getattr(one, "id", None) for one in targets)}
        if (names and own & {*names}) or (isinstance(node, ast.ClassDef) and node.name in outputs):
            exempt |= _constants(node)
    if path.startswith("tests/"):
        exempt |= _constants(tree) - documented  # data of tests
    if any(part in path for part in PROMPTS):
        if not any(part in path for part in ("bench/", "testing.py")):
            exempt |= _constants(tree) - documented
        for node in tree.body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                if any(isinstance(one, ast.Name) and one.id.isupper() for one in targets):
                    exempt |= _constants(node)
    return exempt


def _plain(node: ast.AST) -> set[int]:
    """Return the constants of a node that people read: of docstrings, errors and costs."""
    if isinstance(node, ast.Raise):
        return _constants(node)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error"):
        return _constants(node)
    if isinstance(node, ast.keyword) and node.arg in ("costs", "about", "help"):
        return _constants(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return {id(node.value)}
    return set()


def uses(path: Path, root: Path, outputs: frozenset[str]) -> Iterator[Use]:
    """Yield every use of an avoided word in a Python file, by kind of text."""
    source = path.read_text(encoding="utf-8")
    short, tree = path.relative_to(root), ast.parse(source)
    nodes = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]
    exempt = _for_models(short.as_posix(), tree, nodes, outputs)
    documented = set()
    for node in nodes:
        body = getattr(node, "body", None)
        for part in body if isinstance(body, list) else ():
            # A string on its own documents its module, class, function or the name above it.
            value = part.value if isinstance(part, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                documented.add(id(value))
                if id(value) not in exempt:
                    yield from _in_prose(short, value.lineno, value.value, opens=True)
    for node in nodes:
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\w \w", node.value)
        if is_text and id(node) not in documented | exempt:
            yield from _in_prose(short, node.lineno, node.value)
    # Splitting a file into tokens is slow, so it is only done if the file may have a comment with an avoided word.
    if _COMMENT.search(source):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield from _in_prose(short, token.start[0], token.string, opens=True)
    yield from _in_names(short, nodes)


def uses_below(folders: Sequence[str], root: Path) -> Iterator[Use]:
    """Yield every use of an avoided word in the Python files of some folders, or in some files."""
    outputs = _outputs(root)
    for one in folders:
        for path in sorted((root / one).rglob("*.py")) or [root / one]:
            yield from uses(path, root, outputs)


def main() -> None:
    every = [*uses_below(sys.argv[1:], Path.cwd())]
    print(*every, f"{len(every)} uses", sep="\n")


if __name__ == "__main__":
    main()
