"""De-duplication in other languages: no distinct rule is merged into another one, and every copy is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers import make_tasks, run_command

import practicum
from practicum.models.scripted import Call, ScriptedClient, in_parts
from practicum.session.story import Story

RULES: Mapping[str, Sequence[str]] = {
    "Greek": (
        "Αν ο πελάτης ζητά επιστροφή χρημάτων, έλεγξε πρώτα την ημερομηνία αγοράς.",
        "Στρογγύλεψε τα ποσά μόνο στο τελευταίο βήμα του υπολογισμού.",
        "Κλείσε κάθε αρχείο αμέσως μετά τη χρήση του.",
        "Πριν αλλάξεις μια συνάρτηση, βρες όλα τα σημεία που την καλούν.",
        "Οι αναφορές για χαλασμένες κλειδαριές πηγαίνουν στο συνεργείο.",
        "Η ταχύτητα είναι η απόσταση διαιρεμένη με τον χρόνο.",
        "Ζήτησε τον αριθμό σειράς πριν στείλεις ανταλλακτικό.",
        "Αν το δέμα καθυστερεί, απάντησε «αποθήκη».",
        "Αν το δέμα έχει ζημιά, απάντησε «αποθήκη».",
        "Οι παραγγελίες πάνω από το όριο εγκρίνονται.",
        "Οι παραγγελίες πάνω από το όριο δεν εγκρίνονται.",
    ),
    "Russian": (
        "Если клиент просит вернуть деньги, сначала проверь дату покупки.",
        "Округляй суммы только на последнем шаге расчёта.",
        "Закрывай каждый файл сразу после использования.",
        "Прежде чем менять функцию, найди все места, где она вызывается.",
        "Сообщения о сломанных замках передаются ремонтной бригаде.",
        "Скорость равна расстоянию, делённому на время.",
        "Узнай серийный номер, прежде чем высылать запасную деталь.",
        "Если посылка опаздывает, отвечай «склад».",
        "Если посылка повреждена, отвечай «склад».",
        "Ключ передают соседям.",
        "Ключ не передают соседям.",
    ),
    "Chinese": (
        "如果客户要求退款，先核对购买日期。", "金额只在计算的最后一步四舍五入。", "文件用完后立即关闭。",
        "修改函数之前，先找到所有调用它的地方。", "门锁损坏的报告转给维修组。", "速度等于距离除以时间。",
        "寄出备件之前先询问序列号。", "如果包裹晚到，回答“仓库”。", "如果包裹损坏，回答“仓库”。",
        "超过限额的订单可以批准。", "超过限额的订单不可以批准。",
    ),
    "Japanese": (
        "お客様が返金を求めたら、まず購入日を確認する。", "金額の四捨五入は計算の最後だけに行う。",
        "ファイルは使い終わったらすぐに閉じる。", "関数を変更する前に、それを呼び出している箇所をすべて探す。",
        "鍵の故障の連絡は修理班に回す。", "速さは距離を時間で割ったものである。", "部品を送る前に製造番号を尋ねる。",
        "荷物が遅れているなら、「倉庫」と答える。", "荷物が壊れているなら、「倉庫」と答える。",
        "限度を超える注文は承認する。", "限度を超える注文は承認しない。",
    ),
    "Indonesian": (
        "Jika pelanggan meminta uang kembali, periksa dulu tanggal pembelian.",
        "Bulatkan jumlah hanya pada langkah terakhir perhitungan.",
        "Tutup setiap berkas segera setelah dipakai.",
        "Sebelum mengubah fungsi, cari semua tempat yang memanggilnya.",
        "Laporan kunci rusak diteruskan ke tim perbaikan.",
        "Kecepatan adalah jarak dibagi waktu.",
        "Tanyakan nomor seri sebelum mengirim suku cadang.",
        "Jika paket terlambat, jawab Gudang.",
        "Jika paket rusak, jawab Gudang.",
        "Pesanan di atas batas disetujui.",
        "Pesanan di atas batas tidak disetujui.",
    ),
}  # fmt: skip


def copy(text: str) -> str:
    """A text with other punctuation and spaces."""
    for sign, other in ((", ", " ,  "), ("，", ", "), ("、", "、 "), ("“", "「"), ("”", "」"), ("«", '"'), ("»", '"')):
        text = text.replace(sign, other)
    return f"{text.rstrip('.。')} !"


def learned(folder: Path, texts: Sequence[str], embedder: Any = None) -> tuple[list[str], dict[str, int]]:
    """The entries of a run that learned these texts in one step, and its counters."""

    def respond(call: Call) -> str:
        if call.role == "agent":
            return in_parts(call.prompt, {"used": [], "answer": "wrong"})
        insights = [{"section": "rules", "text": text} for text in texts]
        return json.dumps({
            "reasoning": "", "diagnosis": "", "cause": "", "correction": "", "tags": [], "insights": insights,
        })  # fmt: skip

    parts = practicum.Parts(clients={"agent": ScriptedClient(respond)}, embedder=embedder)
    settings = {"rounds": 0, "curator": "append"}
    work = practicum.learn(make_tasks(1), out=folder / "run", parts=parts, settings=settings, profile="full")
    result = practicum.run_sync(work)
    return [entry.text for entry in result.context], dict(result.errors)


@pytest.mark.parametrize("language", RULES)
def test_distinct_rules_stay_and_copies_are_merged_with_their_texts_shown(tmp_path: Path, language: str) -> None:
    rules, copies = RULES[language], [copy(text) for text in RULES[language]]
    texts, counts = learned(tmp_path, [*rules, *copies])
    assert texts == list(rules)
    assert counts["duplicate_entries"] == len(copies)
    assert counts["compared_by_words"] == 2 * len(rules)
    with Story.open(tmp_path / "run") as story:
        assert [list(event.lost.values()) for event in story.merges()] == [[text] for text in copies]
        assert [event.lost for event in story.entry("e1").events if event.lost] == [{f"e{len(rules) + 1}": copies[1]}]
    shown = run_command(["show", "run", "--merges", "--json"], tmp_path).json["merges"]
    assert [one["lost"] for one in shown] == [{f"e{n}": text} for n, text in enumerate(copies, len(rules))]
