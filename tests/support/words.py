"""The lint of the language: words and phrases that the docstrings, comments, messages and names avoid, with reasons.

`python tests/support/words.py PATH...` lists every use, by file and line. tests/test_words.py runs it in the suite."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PHRASES = {
    # Words of a tale: software is described by what it does now.
    r"told": "name the operation: report, pass, distinguish, identify",
    r"said": "name the source: the message, the report, the answer",
    r"heard": "name the operation: receive",
    r"tells?|telling": "name the operation: report, show, distinguish, identify",
    r"anew": "write 'again', or name what is new",
    r"beside|besides": "write 'next to', 'with', 'also' or 'besides' as 'in addition'",
    r"meanwhile": "name the time: during the call, until the lock is released",
    r"nobody|somebody": "name the actor: no client, a user, another process",
    r"whoever|whomever|whatever|whichever": "name the actor or the thing: any client, any value",
    r"wherever|whence|thereby|therein|thereof|whereby|hence|lest|seldom|hardly|ought": "write the plain word",
    r"stands?|stood|standing": "write 'is', 'is stored', 'appears'",
    r"gone": "write 'removed', 'deleted' or 'missing'",
    r"the house": "write 'practicum' or 'the package'",
    # Nouns that a clause replaces.
    r"what c(?:a|o)mes? of|came of": "write 'outcome' or 'result'",
    r"(?:of|for|by|from|with|in|on|than|as|about|under|after|before|like|and|or) what": "use a noun for the clause",
    r"what (?:is|are|was|were|has|have|had|does|did|it|they)": "use a noun for the clause",
    r"(?:of|for|by|from|with|to|and|or) who(?:m|se)?": "use a noun: the caller, the author, the owner",
    r"of which": "make two sentences, or name the noun",
    r"those (?:that|which|of|who|in|with|without)": "repeat the noun",
    r"(?:the|that) one (?:that|of|which|who|in|with)|ones that|one that": "repeat the noun",
    r"of (?:ours|theirs|its own|their own|our own)|our own": "name the owner: practicum's, the caller's",
    # Definitions by what a thing is not.
    r"(?:is|are|was|were|be) no": "write 'is not a ...', '... does not exist' or 'no ...'",
    r"another one|the other one": "repeat the noun",
    r"nothing but|anything but": "write 'only'",
    r"but for|all but": "write 'except'",
    # Words that a reader has to decode.
    r"so many|so much|as many|as much": "name the number",
    r"as it is|as they are|as it was|as they were": "write 'unchanged'",
    r"at all": "drop it",
    r"alone": "write 'only' or 'by itself'",
    r"rests? (?:up)?on": "write 'depends on'",
    r"where there (?:is|are)|if there (?:is|are) (?:one|none|any|some)": "write 'if present'",
    r"let (?:it|them|its|their|a|the|every|each|no)\b": "name the operation",
}
"""Phrase (a regular expression, matched at word boundaries in any case) → what to write in place of it."""

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


_PHRASES = [(re.compile(rf"\b(?:{pattern})\b", re.I), advice) for pattern, advice in PHRASES.items()]


def _in_prose(path: Path, line: int, text: str, *, opens: bool = False) -> Iterator[Use]:
    for pattern, advice in _PHRASES:
        for match in pattern.finditer(text):
            around = " ".join(text[max(0, match.start() - 40) : match.end() + 40].split())
            yield Use(path, line + text.count("\n", 0, match.start()), match.group(), around, advice)
    first = re.match(r"[#\s]*(\w+)", text)
    if opens and first and first.group(1) in OPENINGS:
        yield Use(path, line, first.group(1), " ".join(text.split())[:80], OPENINGS[first.group(1)])


def _in_names(path: Path, tree: ast.AST) -> Iterator[Use]:
    for node in ast.walk(tree):
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
        for word in re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()):
            if word in NAMES:
                yield Use(path, line, name, name, NAMES[word])


def _is_prompt(name: str) -> bool:
    return name.isupper() and not name.endswith(("_HELP", "_ERROR"))


PROMPTS = ("methods/", "plugins/rivals/", "bench/", "agents/", "tasks/scoring/", "testing.py", "models/")
"""Where constants in capitals are prompts and worked examples for models: measured as they are, so not linted."""


def uses(path: Path, root: Path) -> Iterator[Use]:
    """Every use of an avoided word in a Python file, by line."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    short = path.relative_to(root)
    with_prompts = any(part in path.as_posix() for part in PROMPTS)
    prompts = {
        id(inner)
        for node in tree.body
        if with_prompts and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and _is_prompt(target.id)
        for inner in ast.walk(node.value)
    }
    documented = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for part in body if isinstance(body, list) else ():
            # A string on its own documents its module, class, function or the name above it.
            if (
                isinstance(part, ast.Expr)
                and isinstance(part.value, ast.Constant)
                and isinstance(part.value.value, str)
            ):
                documented.add(id(part.value))
                yield from _in_prose(short, part.lineno, part.value.value, opens=True)
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\w \w", node.value)
        if is_text and id(node) not in documented | prompts:
            yield from _in_prose(short, node.lineno, node.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _in_prose(short, token.start[0], token.string, opens=True)
    yield from _in_names(short, tree)


def main() -> None:
    root = Path.cwd()
    count = 0
    for argument in sys.argv[1:]:
        start = (root / argument).resolve()
        for path in sorted(start.rglob("*.py")) if start.is_dir() else [start]:
            for use in uses(path, root):
                print(use)
                count += 1
    print(f"{count} uses")


if __name__ == "__main__":
    main()
