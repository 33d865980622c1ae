"""ace-framework: its offline ACE over the tasks, by the integration that its documentation has for classification."""

from __future__ import annotations

from ace import ACELiteLLM, Sample, SimpleEnvironment
from peer import AT_ONCE, Case, read_case

CALLS_A_TASK = 3
"""Number of calls of a task without retries: agent, reflector and skill manager."""


def main(case: Case) -> None:
    options = {"model": f"openai/{case.model}", "api_key": "none", "timeout": 3000}
    learner = ACELiteLLM(base_url=case.learning, **options)
    train = case.train[: case.budget // CALLS_A_TASK]
    samples = [Sample(question=t["input"], context=case.instructions, ground_truth=t["target"]) for t in train]
    learner.learn(samples, SimpleEnvironment())
    path = f"{case.folder}/skillbook.json"
    learner.save_skillbook(path)
    print(learner.skillbook.as_prompt())
    tester = ACELiteLLM(base_url=case.testing, skillbook_path=path, is_learning=False, **options)
    case.predict(lambda text: tester.ask(text, context=case.instructions), AT_ONCE)


if __name__ == "__main__":
    main(read_case())
