"""A watch of your own: it is told of every call and every step of a run, here to warn of slow calls and to stop early.

    python examples/own_watch.py                        # gpt-4.1-mini, needs OPENAI_API_KEY
    python examples/own_watch.py http://localhost:8000/v1#my-model

`watch=` also takes several: `watch=[SlowCalls(), practicum.trackers.Mlflow()]`. See docs/monitor.md.
"""

import sys
from pathlib import Path

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
        if report.step == 4:
            self.budget.stop("four steps are enough here")


async def main(model: str) -> None:
    tasks = practicum.load_tasks(TASKS)
    result = await practicum.learn(tasks[:8], method="ace", model=model, watch=SlowCalls())
    print(f"stopped: {result.stopped}; continue with: practicum space resume {result.run}")


if __name__ == "__main__":
    practicum.run_sync(main(sys.argv[1] if len(sys.argv) > 1 else "openai:gpt-4.1-mini"))
