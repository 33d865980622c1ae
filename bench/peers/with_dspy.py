"""dspy: few-shot prompts and prompt optimizers, with a classifier in the form of its documentation."""

from __future__ import annotations

from typing import Any, Literal

import dspy
from peer import AT_ONCE, MAX_OUTPUT_TOKENS, Case, read_case

NEIGHBOURS = 4


def main(case: Case) -> None:
    learner, tester = (
        dspy.LM(f"openai/{case.model}", api_base=base, api_key="none", temperature=0.0, max_tokens=MAX_OUTPUT_TOKENS,
                timeout=3000)
        for base in (case.learning, case.testing)
    )  # fmt: skip
    answer = Literal[tuple(case.choices)] if case.choices else str
    signature = dspy.Signature({"message": (str, dspy.InputField()), "answer": (answer, dspy.OutputField())})
    student = dspy.Predict(signature.with_instructions(case.instructions))
    train = [dspy.Example(message=t["input"], answer=t["target"]).with_inputs("message") for t in case.train]
    dspy.configure(lm=learner)
    program = compiled(case, student, train, learner)
    print(program)
    dspy.configure(lm=tester)
    case.predict(lambda text: program(message=text).answer)


def compiled(case: Case, student: Any, train: list[Any], learner: Any) -> Any:
    """Return the program that the optimizer builds."""
    fit, val = train[: case.split], train[case.split :]
    match case.method:
        case "LabeledFewShot":
            return dspy.LabeledFewShot().compile(student, trainset=train)
        case "KNNFewShot" | "KNNFewShot-labelled":
            vectors = dspy.Embedder("openai/wordllama", api_base=case.learning, api_key="none", caching=False)
            # By default, the model also answers the neighbours, and the demonstrations are its right answers.
            shown = {"metric": right} if case.method == "KNNFewShot" else {"max_bootstrapped_demos": 0}
            return dspy.KNNFewShot(k=NEIGHBOURS, trainset=train, vectorizer=vectors, **shown).compile(student)
        case "MIPROv2":
            search = dspy.MIPROv2(metric=right, auto=None, num_candidates=3, num_threads=AT_ONCE, seed=case.seed)
            return search.compile(student, trainset=fit, valset=val, num_trials=3, minibatch=False)
        case "GEPA":
            search = dspy.GEPA(
                metric=explained, max_metric_calls=case.attempts, num_threads=AT_ONCE, reflection_lm=learner,
                seed=case.seed,
            )  # fmt: skip
            return search.compile(student, trainset=fit, valset=val)
    raise SystemExit(f"no such optimizer: {case.method}")


def right(example: Any, prediction: Any, trace: Any = None) -> bool:
    return str(prediction.answer).strip().lower() == example.answer.lower()


def explained(gold: Any, pred: Any, trace: Any = None, pred_name: Any = None, pred_trace: Any = None) -> Any:
    """Return the score with feedback in words, which GEPA's documentation requires."""
    good = right(gold, pred)
    note = f"The answer {pred.answer!r} is " + ("right." if good else f"wrong: the right answer is {gold.answer!r}.")
    return dspy.Prediction(score=float(good), feedback=note)


if __name__ == "__main__":
    main(read_case())
