"""The tables of the papers as data, one file a paper: `practicum bench paper NAME` runs one by `practicum compare`."""

from practicum.bench.papers import ace, combee, mael, matts, rcl, unified
from practicum.bench.papers.table import PaperTable

TABLES: dict[str, PaperTable] = {
    table.name: table for paper in (ace, combee, rcl, mael, matts, unified) for table in paper.TABLES
}
