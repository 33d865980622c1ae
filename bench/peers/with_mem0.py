"""mem0: solved tasks as memories, and the nearest ones in the prompt, as in the chat of its quickstart.

`raw` keeps the memories as they are written (infer=False); `inferred` lets the model extract them, mem0's default.
"""

from __future__ import annotations

from mem0 import Memory
from openai import OpenAI
from peer import MAX_OUTPUT_TOKENS, Case, read_case

NEAREST = 4
DIMENSIONS = 256
WHOSE = "operator"


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
            memory.add(text, user_id=WHOSE, infer=case.method == "inferred")
        except Exception as error:
            print(f"{task['id']}: {type(error).__name__}: {error}")
    client = OpenAI(base_url=case.testing, api_key="none", timeout=3000)

    def answer(text: str) -> str:
        found = memory.search(text, filters={"user_id": WHOSE}, top_k=NEAREST)["results"]
        memories = "".join(f"- {one['memory']}\n" for one in found)
        system = f"{case.instructions} Use the memories.\nMemories of the user:\n{memories}"
        reply = client.chat.completions.create(
            model=case.model, temperature=0.0, max_tokens=MAX_OUTPUT_TOKENS,
            messages=[{"role": "system", "content": system}, {"role": "user", "content": text}],
        )  # fmt: skip
        return reply.choices[0].message.content or ""

    # Its local database may be read by one thread at a time.
    case.predict(answer, at_once=1)


if __name__ == "__main__":
    main(read_case())
