"""Tables of the papers as data, one file per paper. `practicum bench paper NAME` runs a table like `practicum
compare`."""

from practicum.bench.papers import ace, combee, mael, matts, rcl, unified
from practicum.bench.papers.table import PaperTable

TABLES: dict[str, PaperTable] = {
    table.name: table for paper in (ace, combee, rcl, mael, matts, unified) for table in paper.TABLES
}
