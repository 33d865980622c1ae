"""Watch a run: success, memory, retrieval, drift, agreement, the judge, latency and costs, for a run of any method."""

from practicum.analysis.monitor.report import MonitorReport, monitor

__all__ = ["MonitorReport", "monitor"]
