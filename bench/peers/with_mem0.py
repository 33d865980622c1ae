"""mem0: solved tasks as memories, and the nearest memories in the prompt, as in the chat of its quickstart.

`raw` stores the texts of the tasks (infer=False). With `inferred`, mem0's default, the model extracts the memories.
"""

from __future__ import annotations

from mem0 import Memory
from openai import OpenAI
from peer import MAX_OUTPUT_TOKENS, Case, read_case

NEAREST = 4
DIMENSIONS = 256
USER = "operator"


def main(case: Case) -> None:
    llm = {"model": case.model, "openai_base_url": case.learning, "api_key": "none", "temperature": 0.0,
           "max_tokens": MAX_OUTPUT_TOKENS}  # fmt: skip
    embedder = {"model": "wordllama", "openai_base_url": case.learning, "api_key": "none",
                "embedding_dims": DIMENSIONS}  # fmt: skip
    vectors = {"path": f"{case.folder}/qdrant", "embedding_model_dims": DIMENSIONS, "on_disk": False}
    memory = Memory.from_config({
        "llm": {"provider": "openai", "config": llm},
        "embedder": {"provider": "openai", "config": embedder},
        "vector_store": {"provider": "qdrant", "config": vectors},
        "history_db_path": f"{case.folder}/history.db",
    })  # fmt: skip
    for task in case.train:
        try:
            text = f"Message: {task['input']} Answer: {task['target']}"
            memory.add(text, user_id=USER, infer=case.method == "inferred")
        except Exception as error:
            print(f"{task['id']}: {type(error).__name__}: {error}")
    client = OpenAI(base_url=case.testing, api_key="none", timeout=3000)

    def answer(text: str) -> str:
        matches = memory.search(text, filters={"user_id": USER}, top_k=NEAREST)["results"]
        memories = "".join(f"- {one['memory']}\n" for one in matches)
        system = f"{case.instructions} Use the memories.\nMemories of the user:\n{memories}"
        reply = client.chat.completions.create(
            model=case.model, temperature=0.0, max_tokens=MAX_OUTPUT_TOKENS,
            messages=[{"role": "system", "content": system}, {"role": "user", "content": text}],
        )  # fmt: skip
        return reply.choices[0].message.content or ""

    # Only one thread at a time may read mem0's local database.
    case.predict(answer, at_once=1)


if __name__ == "__main__":
    main(read_case())
