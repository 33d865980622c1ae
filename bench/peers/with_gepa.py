"""gepa: evolves the instructions as a system prompt, with its default adapter and evaluator."""

from __future__ import annotations

from typing import Any

import gepa
from gepa.lm import LM
from peer import AT_ONCE, MAX_OUTPUT_TOKENS, Case, read_case


def main(case: Case) -> None:
    data: list[Any] = [
        {"input": task["input"], "answer": task["target"], "additional_context": {}} for task in case.train
    ]
    learner, tester = (
        LM(f"openai/{case.model}", api_base=base, api_key="none", temperature=0.0, max_tokens=MAX_OUTPUT_TOKENS,
           timeout=3000)
        for base in (case.learning, case.testing)
    )  # fmt: skip
    adapter = gepa.adapters.default_adapter.default_adapter.DefaultAdapter(learner, max_litellm_workers=AT_ONCE)
    result = gepa.optimize(
        seed_candidate={"system_prompt": case.instructions}, trainset=data[: case.split], valset=data[case.split :],
        adapter=adapter, reflection_lm=learner, max_metric_calls=case.attempts, seed=case.seed,
    )  # fmt: skip
    system = result.best_candidate["system_prompt"]
    print(system)
    case.predict(lambda text: tester([{"role": "system", "content": system}, {"role": "user", "content": text}]))


if __name__ == "__main__":
    main(read_case())
