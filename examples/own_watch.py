"""A watch receives every call and every step of a run. This one warns of slow calls and stops the run early.

    python examples/own_watch.py [--model openai:gpt-4.1-mini]

`watch=` also takes several: `watch=[SlowCalls(), practicum.trackers.Mlflow()]`.
"""

from pathlib import Path

from model import chosen

import practicum

TASKS = Path(__file__).with_name("tasks.jsonl")


class SlowCalls(practicum.Watch):
    def began(self, run):
        self.budget = run.budget

    def called(self, call):
        if call.seconds > 10:
            print(f"{call.role} took {call.seconds:.0f} s at {call.place}")

    def stepped(self, report, progress):
        print(f"step {report.step}: {len(report.context)} entries, score {progress.score or 0:.0%}")
        if report.step == 2:
            self.budget.stop("two steps are enough here")


async def main(model: str) -> None:
    tasks = practicum.load_tasks(TASKS)
    result = await practicum.learn(tasks[:8], method="ace", model=model, watch=SlowCalls())
    print(f"stopped: {result.stopped}; continue with: practicum space resume {result.run}")


if __name__ == "__main__":
    practicum.run_sync(main(chosen()))
