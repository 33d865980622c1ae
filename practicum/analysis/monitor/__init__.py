"""Metrics of a run of any method: success, memory, retrieval, drift, agreement, judge, latency and costs."""

from practicum.analysis.monitor.report import MonitorReport, monitor

__all__ = ["MonitorReport", "monitor"]
