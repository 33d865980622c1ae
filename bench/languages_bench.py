"""Number of distinct rules that de-duplication merges, and of copies with other punctuation that it finds, by language.

    python bench/languages_bench.py [--embedder NAME] [--headroom] [--json]

Each language has the same 18 to 21 rules: ten on different subjects, and some of the same form ("If a parcel is late,
answer depot"). One or two pairs differ only in a negation. No two rules have the same meaning, so every merge is wrong.

`--headroom` prints, for the languages of `CHOSEN_ON`, the number of merges for each value of
`retrieval.scripts.HEADROOM`. The value was chosen with these languages only. It does not affect English, which is
compared by its embedding.
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from measure import load_average, print_end

from practicum.core.context import Context, seed_context
from practicum.core.counts import Count
from practicum.core.edits import Add, Delta, Merge
from practicum.core.types import Lesson
from practicum.methods.blocks.dedupe import deduplicated
from practicum.retrieval import scripts
from practicum.retrieval.vectors import Embedder, open_embedder, same_from

CHOSEN_ON = ("Russian", "Chinese", "Korean", "German", "Hindi")

TEXTS: Mapping[str, Sequence[str]] = {
    "Russian": (
        "Если клиент просит вернуть деньги, сначала проверь дату покупки.",
        "Округляй суммы только на последнем шаге расчёта.",
        "Закрывай каждый файл сразу после использования.",
        "Пиши короткие предложения, в каждом по одной мысли.",
        "Прежде чем менять функцию, найди все места, где она вызывается.",
        "Лихорадка после поездки в тропики требует проверки на малярию.",
        "Сообщения о сломанных замках передаются ремонтной бригаде.",
        "Прочитай итог на странице подтверждения до отправки заказа.",
        "Скорость равна расстоянию, делённому на время.",
        "Узнай серийный номер, прежде чем высылать запасную деталь.",
        "Если посетитель хочет продлить книгу, отвечай «зелёный».",
        "Если посетитель сообщает о поломке лампы, отвечай «синий».",
        "Если посетитель хочет записаться в кружок, отвечай «зелёный».",
        "Если посылка опаздывает, отвечай «склад».",
        "Если посылка повреждена, отвечай «склад».",
        "Если клиент просит счёт, отвечай «контора».",
        "Если клиент меняет адрес, отвечай «контора».",
        "Заказы дороже предела можно утверждать.",
        "Заказы дороже предела нельзя утверждать.",
        "Ключ передают соседям.",
        "Ключ не передают соседям.",
    ),
    "Chinese": (
        "如果客户要求退款，先核对购买日期。",
        "金额只在计算的最后一步四舍五入。",
        "文件用完后立即关闭。",
        "句子要短，每句只讲一个意思。",
        "修改函数之前，先找到所有调用它的地方。",
        "从热带旅行回来后发烧，要检查是否得了疟疾。",
        "门锁损坏的报告转给维修组。",
        "提交订单前先看确认页上的总价。",
        "速度等于距离除以时间。",
        "寄出备件之前先询问序列号。",
        "如果访客想续借图书，回答“绿色”。",
        "如果访客报告灯坏了，回答“蓝色”。",
        "如果访客想参加读书会，回答“绿色”。",
        "如果包裹晚到，回答“仓库”。",
        "如果包裹损坏，回答“仓库”。",
        "如果客户要发票，回答“办公室”。",
        "如果客户更改地址，回答“办公室”。",
        "超过限额的订单可以批准。",
        "超过限额的订单不可以批准。",
        "钥匙交给邻居。",
        "钥匙不交给邻居。",
    ),
    "Korean": (
        "고객이 환불을 요청하면 먼저 구매 날짜를 확인한다.",
        "금액은 계산의 마지막 단계에서만 반올림한다.",
        "파일은 사용한 뒤 바로 닫는다.",
        "문장은 짧게, 한 문장에 한 가지 생각만 쓴다.",
        "함수를 바꾸기 전에 그것을 호출하는 곳을 모두 찾는다.",
        "열대 지방 여행 후의 발열은 말라리아 검사가 필요하다.",
        "고장 난 자물쇠 신고는 수리팀으로 보낸다.",
        "주문을 보내기 전에 확인 페이지의 합계를 읽는다.",
        "속력은 거리를 시간으로 나눈 것이다.",
        "부품을 보내기 전에 일련번호를 묻는다.",
        "방문자가 책 대출을 연장하려 하면 '초록'이라고 답한다.",
        "방문자가 전등 고장을 알리면 '파랑'이라고 답한다.",
        "방문자가 독서 모임에 들고 싶어 하면 '초록'이라고 답한다.",
        "소포가 늦으면 '창고'라고 답한다.",
        "소포가 파손되면 '창고'라고 답한다.",
        "고객이 청구서를 요구하면 '사무실'이라고 답한다.",
        "한도를 넘는 주문은 승인한다.",
        "한도를 넘는 주문은 승인하지 않는다.",
    ),
    "German": (
        "Wenn ein Kunde Geld zurückverlangt, prüfe zuerst das Kaufdatum.",
        "Runde Beträge erst im letzten Schritt der Rechnung.",
        "Schließe jede Datei gleich nach dem Gebrauch.",
        "Schreibe kurze Sätze mit je einem Gedanken.",
        "Bevor du eine Funktion änderst, suche alle Stellen, die sie aufrufen.",
        "Fieber nach einer Reise in die Tropen verlangt einen Test auf Malaria.",
        "Meldungen über kaputte Schlösser gehen an die Werkstatt.",
        "Lies die Summe auf der Bestätigungsseite, bevor du bestellst.",
        "Geschwindigkeit ist Weg durch Zeit.",
        "Frage nach der Seriennummer, bevor du ein Ersatzteil schickst.",
        "Wenn ein Besucher ein Buch länger behalten will, antworte Grün.",
        "Wenn ein Besucher eine kaputte Lampe meldet, antworte Blau.",
        "Wenn ein Besucher in einen Lesekreis möchte, antworte Grün.",
        "Wenn ein Paket zu spät kommt, antworte Lager.",
        "Wenn ein Paket beschädigt ist, antworte Lager.",
        "Wenn ein Kunde eine Rechnung möchte, antworte Büro.",
        "Bestellungen über dem Limit werden genehmigt.",
        "Bestellungen über dem Limit werden nicht genehmigt.",
    ),
    "Hindi": (
        "यदि ग्राहक धन वापसी माँगे तो पहले खरीद की तारीख जाँचो।",
        "राशि को गणना के अंतिम चरण में ही पूर्णांकित करो।",
        "हर फ़ाइल को उपयोग के तुरंत बाद बंद करो।",
        "छोटे वाक्य लिखो, हर वाक्य में एक विचार।",
        "किसी फ़ंक्शन को बदलने से पहले उसे बुलाने वाली सभी जगहें खोजो।",
        "उष्णकटिबंधीय यात्रा के बाद बुखार में मलेरिया की जाँच करो।",
        "टूटे ताले की सूचना मरम्मत दल को भेजो।",
        "ऑर्डर भेजने से पहले पुष्टि पृष्ठ पर कुल राशि पढ़ो।",
        "गति दूरी को समय से भाग देने पर मिलती है।",
        "पुर्जा भेजने से पहले क्रम संख्या पूछो।",
        "यदि आगंतुक पुस्तक की अवधि बढ़ाना चाहे तो हरा उत्तर दो।",
        "यदि आगंतुक खराब बत्ती की सूचना दे तो नीला उत्तर दो।",
        "यदि आगंतुक पाठक मंडल में आना चाहे तो हरा उत्तर दो।",
        "यदि पार्सल देर से आए तो गोदाम उत्तर दो।",
        "यदि पार्सल टूटा हो तो गोदाम उत्तर दो।",
        "यदि ग्राहक बिल माँगे तो कार्यालय उत्तर दो।",
        "सीमा से ऊपर के ऑर्डर स्वीकृत होते हैं।",
        "सीमा से ऊपर के ऑर्डर स्वीकृत नहीं होते हैं।",
    ),
    "Greek": (
        "Αν ο πελάτης ζητά επιστροφή χρημάτων, έλεγξε πρώτα την ημερομηνία αγοράς.",
        "Στρογγύλεψε τα ποσά μόνο στο τελευταίο βήμα του υπολογισμού.",
        "Κλείσε κάθε αρχείο αμέσως μετά τη χρήση του.",
        "Γράψε σύντομες προτάσεις με μία ιδέα η καθεμία.",
        "Πριν αλλάξεις μια συνάρτηση, βρες όλα τα σημεία που την καλούν.",
        "Ο πυρετός μετά από ταξίδι στους τροπικούς χρειάζεται εξέταση για ελονοσία.",
        "Οι αναφορές για χαλασμένες κλειδαριές πηγαίνουν στο συνεργείο.",
        "Διάβασε το σύνολο στη σελίδα επιβεβαίωσης προτού υποβάλεις την παραγγελία.",
        "Η ταχύτητα είναι η απόσταση διαιρεμένη με τον χρόνο.",
        "Ζήτησε τον αριθμό σειράς πριν στείλεις ανταλλακτικό.",
        "Αν ο επισκέπτης θέλει να ανανεώσει ένα βιβλίο, απάντησε «πράσινο».",
        "Αν ο επισκέπτης αναφέρει χαλασμένη λάμπα, απάντησε «μπλε».",
        "Αν ο επισκέπτης θέλει να γραφτεί σε λέσχη, απάντησε «πράσινο».",
        "Αν το δέμα καθυστερεί, απάντησε «αποθήκη».",
        "Αν το δέμα έχει ζημιά, απάντησε «αποθήκη».",
        "Αν ο πελάτης ζητά τιμολόγιο, απάντησε «γραφείο».",
        "Αν ο πελάτης αλλάζει διεύθυνση, απάντησε «γραφείο».",
        "Οι παραγγελίες πάνω από το όριο εγκρίνονται.",
        "Οι παραγγελίες πάνω από το όριο δεν εγκρίνονται.",
        "Το κλειδί δίνεται στους γείτονες.",
        "Το κλειδί δεν δίνεται στους γείτονες.",
    ),
    "Japanese": (
        "お客様が返金を求めたら、まず購入日を確認する。",
        "金額の四捨五入は計算の最後だけに行う。",
        "ファイルは使い終わったらすぐに閉じる。",
        "文は短くし、一文に一つの考えだけを書く。",
        "関数を変更する前に、それを呼び出している箇所をすべて探す。",
        "熱帯から帰国した後の発熱は、マラリアを疑って検査する。",
        "鍵の故障の連絡は修理班に回す。",
        "注文を送信する前に確認ページの合計を読む。",
        "速さは距離を時間で割ったものである。",
        "部品を送る前に製造番号を尋ねる。",
        "来館者が本の貸出延長を望むなら、「緑」と答える。",
        "来館者が電灯の故障を知らせるなら、「青」と答える。",
        "来館者が読書会に入りたいなら、「緑」と答える。",
        "荷物が遅れているなら、「倉庫」と答える。",
        "荷物が壊れているなら、「倉庫」と答える。",
        "顧客が請求書を求めるなら、「事務所」と答える。",
        "顧客が住所を変えるなら、「事務所」と答える。",
        "限度を超える注文は承認する。",
        "限度を超える注文は承認しない。",
        "鍵は隣人に渡す。",
        "鍵は隣人に渡さない。",
    ),
    "Arabic": (
        "إذا طلب العميل استرداد المال فتحقق أولا من تاريخ الشراء.",
        "قرب المبالغ في الخطوة الأخيرة من الحساب فقط.",
        "أغلق كل ملف فور الانتهاء من استخدامه.",
        "اكتب جملا قصيرة في كل منها فكرة واحدة.",
        "قبل تغيير دالة ابحث عن كل المواضع التي تستدعيها.",
        "الحمى بعد السفر إلى المناطق الاستوائية تستدعي فحص الملاريا.",
        "بلاغات الأقفال المكسورة تذهب إلى فريق الصيانة.",
        "اقرأ المجموع في صفحة التأكيد قبل إرسال الطلب.",
        "السرعة هي المسافة مقسومة على الزمن.",
        "اسأل عن الرقم التسلسلي قبل إرسال قطعة الغيار.",
        "إذا أراد الزائر تمديد إعارة كتاب فأجب بالأخضر.",
        "إذا أبلغ الزائر عن مصباح معطل فأجب بالأزرق.",
        "إذا أراد الزائر الانضمام إلى نادي القراءة فأجب بالأخضر.",
        "إذا تأخر الطرد فأجب بالمستودع.",
        "إذا تلف الطرد فأجب بالمستودع.",
        "إذا طلب العميل فاتورة فأجب بالمكتب.",
        "الطلبات التي تتجاوز الحد يوافق عليها.",
        "الطلبات التي تتجاوز الحد لا يوافق عليها.",
    ),
    "Vietnamese": (
        "Nếu khách hàng đòi hoàn tiền, hãy kiểm tra ngày mua trước.",
        "Chỉ làm tròn số tiền ở bước tính cuối cùng.",
        "Đóng mỗi tệp ngay sau khi dùng xong.",
        "Viết câu ngắn, mỗi câu một ý.",
        "Trước khi sửa một hàm, hãy tìm mọi chỗ gọi đến nó.",
        "Sốt sau chuyến đi vùng nhiệt đới cần xét nghiệm sốt rét.",
        "Báo cáo khóa hỏng được chuyển cho đội sửa chữa.",
        "Đọc tổng số tiền trên trang xác nhận trước khi gửi đơn hàng.",
        "Vận tốc bằng quãng đường chia cho thời gian.",
        "Hỏi số sê-ri trước khi gửi linh kiện thay thế.",
        "Nếu khách muốn gia hạn sách, trả lời xanh lá.",
        "Nếu khách báo đèn hỏng, trả lời xanh dương.",
        "Nếu khách muốn vào câu lạc bộ đọc sách, trả lời xanh lá.",
        "Nếu bưu kiện đến muộn, trả lời kho.",
        "Nếu bưu kiện bị hỏng, trả lời kho.",
        "Nếu khách hàng cần hóa đơn, trả lời văn phòng.",
        "Đơn hàng vượt hạn mức được duyệt.",
        "Đơn hàng vượt hạn mức không được duyệt.",
    ),
    "Turkish": (
        "Müşteri para iadesi isterse önce satın alma tarihini kontrol et.",
        "Tutarları yalnızca hesabın son adımında yuvarla.",
        "Her dosyayı kullandıktan hemen sonra kapat.",
        "Her biri tek fikir içeren kısa cümleler yaz.",
        "Bir işlevi değiştirmeden önce onu çağıran bütün yerleri bul.",
        "Tropik bir geziden sonra çıkan ateşte sıtma testi gerekir.",
        "Bozuk kilit bildirimleri onarım ekibine gider.",
        "Siparişi göndermeden önce onay sayfasındaki toplamı oku.",
        "Hız, yolun zamana bölümüdür.",
        "Yedek parça göndermeden önce seri numarasını sor.",
        "Ziyaretçi kitabın süresini uzatmak isterse yeşil diye yanıtla.",
        "Ziyaretçi bozuk lamba bildirirse mavi diye yanıtla.",
        "Ziyaretçi okuma grubuna katılmak isterse yeşil diye yanıtla.",
        "Koli gecikirse depo diye yanıtla.",
        "Koli hasarlıysa depo diye yanıtla.",
        "Müşteri fatura isterse büro diye yanıtla.",
        "Sınırı aşan siparişler onaylanır.",
        "Sınırı aşan siparişler onaylanmaz.",
    ),
    "Polish": (
        "Jeśli klient prosi o zwrot pieniędzy, najpierw sprawdź datę zakupu.",
        "Zaokrąglaj kwoty dopiero w ostatnim kroku obliczeń.",
        "Zamykaj każdy plik zaraz po użyciu.",
        "Pisz krótkie zdania, każde z jedną myślą.",
        "Zanim zmienisz funkcję, znajdź wszystkie miejsca, które ją wywołują.",
        "Gorączka po podróży do tropików wymaga badania na malarię.",
        "Zgłoszenia o zepsutych zamkach trafiają do ekipy naprawczej.",
        "Przeczytaj sumę na stronie potwierdzenia, zanim złożysz zamówienie.",
        "Prędkość to droga podzielona przez czas.",
        "Zapytaj o numer seryjny, zanim wyślesz część zamienną.",
        "Jeśli gość chce przedłużyć książkę, odpowiedz zielony.",
        "Jeśli gość zgłasza zepsutą lampę, odpowiedz niebieski.",
        "Jeśli gość chce wejść do klubu czytelników, odpowiedz zielony.",
        "Jeśli paczka się spóźnia, odpowiedz magazyn.",
        "Jeśli paczka jest uszkodzona, odpowiedz magazyn.",
        "Jeśli klient prosi o fakturę, odpowiedz biuro.",
        "Zamówienia powyżej limitu są zatwierdzane.",
        "Zamówienia powyżej limitu nie są zatwierdzane.",
    ),
    "French": (
        "Si un client demande un remboursement, vérifie d'abord la date d'achat.",
        "N'arrondis les montants qu'à la dernière étape du calcul.",
        "Ferme chaque fichier aussitôt après usage.",
        "Écris des phrases courtes, une idée par phrase.",
        "Avant de changer une fonction, trouve tous les endroits qui l'appellent.",
        "Une fièvre après un voyage sous les tropiques demande un test du paludisme.",
        "Les signalements de serrures cassées vont à l'équipe de réparation.",
        "Lis le total sur la page de confirmation avant d'envoyer la commande.",
        "La vitesse est la distance divisée par le temps.",
        "Demande le numéro de série avant d'envoyer une pièce de rechange.",
        "Si un visiteur veut prolonger un livre, réponds vert.",
        "Si un visiteur signale une lampe cassée, réponds bleu.",
        "Si un visiteur veut entrer dans un cercle de lecture, réponds vert.",
        "Si un colis est en retard, réponds dépôt.",
        "Si un colis est abîmé, réponds dépôt.",
        "Si un client veut une facture, réponds bureau.",
        "Les commandes au-dessus de la limite sont approuvées.",
        "Les commandes au-dessus de la limite ne sont pas approuvées.",
    ),
    "Spanish": (
        "Si un cliente pide un reembolso, comprueba primero la fecha de compra.",
        "Redondea los importes solo en el último paso del cálculo.",
        "Cierra cada archivo justo después de usarlo.",
        "Escribe frases cortas con una idea cada una.",
        "Antes de cambiar una función, busca todos los lugares que la llaman.",
        "La fiebre después de un viaje al trópico exige una prueba de malaria.",
        "Los avisos de cerraduras rotas van al equipo de reparación.",
        "Lee el total en la página de confirmación antes de enviar el pedido.",
        "La velocidad es la distancia dividida por el tiempo.",
        "Pide el número de serie antes de enviar un repuesto.",
        "Si un visitante quiere renovar un libro, responde verde.",
        "Si un visitante avisa de una lámpara rota, responde azul.",
        "Si un visitante quiere entrar en un club de lectura, responde verde.",
        "Si un paquete llega tarde, responde almacén.",
        "Si un paquete está dañado, responde almacén.",
        "Si un cliente quiere una factura, responde oficina.",
        "Los pedidos por encima del límite se aprueban.",
        "Los pedidos por encima del límite no se aprueban.",
    ),
    "Indonesian": (
        "Jika pelanggan meminta uang kembali, periksa dulu tanggal pembelian.",
        "Bulatkan jumlah hanya pada langkah terakhir perhitungan.",
        "Tutup setiap berkas segera setelah dipakai.",
        "Tulis kalimat pendek dengan satu gagasan.",
        "Sebelum mengubah fungsi, cari semua tempat yang memanggilnya.",
        "Demam setelah perjalanan ke daerah tropis perlu tes malaria.",
        "Laporan kunci rusak diteruskan ke tim perbaikan.",
        "Baca jumlah di halaman konfirmasi sebelum mengirim pesanan.",
        "Kecepatan adalah jarak dibagi waktu.",
        "Tanyakan nomor seri sebelum mengirim suku cadang.",
        "Jika pengunjung ingin memperpanjang buku, jawab Hijau.",
        "Jika pengunjung melaporkan lampu rusak, jawab Biru.",
        "Jika pengunjung ingin masuk klub baca, jawab Hijau.",
        "Jika paket terlambat, jawab Gudang.",
        "Jika paket rusak, jawab Gudang.",
        "Jika pelanggan meminta faktur, jawab Kantor.",
        "Pesanan di atas batas disetujui.",
        "Pesanan di atas batas tidak disetujui.",
    ),
    "Dutch": (
        "Als een klant geld terugvraagt, controleer eerst de aankoopdatum.",
        "Rond bedragen pas bij de laatste stap van de berekening af.",
        "Sluit elk bestand meteen na gebruik.",
        "Schrijf korte zinnen met elk een gedachte.",
        "Zoek voor je een functie wijzigt alle plaatsen die haar aanroepen.",
        "Koorts na een reis naar de tropen vraagt om een malariatest.",
        "Meldingen van kapotte sloten gaan naar de reparatieploeg.",
        "Lees het totaal op de bevestigingspagina voor je bestelt.",
        "Snelheid is afstand gedeeld door tijd.",
        "Vraag het serienummer voor je een onderdeel opstuurt.",
        "Als een bezoeker een boek wil verlengen, antwoord Groen.",
        "Als een bezoeker een kapotte lamp meldt, antwoord Blauw.",
        "Als een bezoeker bij een leesgroep wil, antwoord Groen.",
        "Als een pakket te laat komt, antwoord Depot.",
        "Als een pakket beschadigd is, antwoord Depot.",
        "Als een klant een factuur wil, antwoord Kantoor.",
        "Bestellingen boven de limiet worden goedgekeurd.",
        "Bestellingen boven de limiet worden niet goedgekeurd.",
    ),
    "Italian": (
        "Se un cliente chiede un rimborso, controlla prima la data di acquisto.",
        "Arrotonda gli importi solo nel passo finale del calcolo.",
        "Chiudi ogni file subito dopo averlo usato.",
        "Scrivi frasi brevi con una sola idea.",
        "Prima di cambiare una funzione, trova tutti i punti che la chiamano.",
        "La febbre dopo un viaggio ai tropici richiede un test della malaria.",
        "Le segnalazioni di serrature rotte vanno alla squadra di riparazione.",
        "Leggi il totale nella pagina di conferma prima di inviare un ordine.",
        "Per la velocità dividi la distanza per il tempo.",
        "Chiedi il numero di serie prima di spedire un ricambio.",
        "Se un visitatore vuole prolungare un libro, rispondi Verde.",
        "Se un visitatore segnala una lampada rotta, rispondi Blu.",
        "Se un visitatore vuole entrare in un gruppo di lettura, rispondi Verde.",
        "Se un pacco arriva tardi, rispondi Deposito.",
        "Se un pacco arriva rotto, rispondi Deposito.",
        "Se un cliente vuole una fattura, rispondi Ufficio.",
        "Gli ordini sopra il limite sono approvati.",
        "Gli ordini sopra il limite non sono approvati.",
    ),
    "English": (
        "If a customer asks for a refund, check the date of purchase first.",
        "Round amounts only in the last step of the calculation.",
        "Close every file right after its use.",
        "Write short sentences with one idea each.",
        "Before you change a function, find all places that call it.",
        "A fever after a journey to the tropics needs a test for malaria.",
        "Reports of broken locks go to the repair team.",
        "Read the total on the confirmation page before you send the order.",
        "Speed is distance divided by time.",
        "Ask for the serial number before you send a spare part.",
        "If a visitor wants to keep a book longer, answer Green.",
        "If a visitor reports that a lamp does not work, answer Blue.",
        "If a visitor wants to join a reading group, answer Green.",
        "If a customer's parcel is late, answer Depot.",
        "If a customer's parcel is damaged, answer Depot.",
        "If a customer wants an invoice, answer Office.",
        "Orders above the limit are approved.",
        "Orders above the limit are not approved.",
    ),
}  # fmt: skip


class EmbeddingRun:
    """The part of a run that de-duplication uses."""

    choices: Sequence[str] = ()

    def __init__(self, embedder: Embedder) -> None:
        self.embed = embedder.embed
        self.same_from = same_from(embedder.name, "full")
        self.counts = Counter[str]()

    def count(self, counter: Count, by: int = 1) -> None:
        self.counts[counter] += by


def merged(embedder: Embedder, context: Context, texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Add texts to a context, and return the ids of the entries of each merge."""

    async def update(lessons: Sequence[Lesson], context: Context, run: Any) -> Delta:
        return Delta(tuple(Add("rules", text) for text in texts))

    run: Any = EmbeddingRun(embedder)
    delta = asyncio.run(deduplicated(update, "auto")((), context, run))
    return [done.edit.ids for done in context.apply(delta).applied if isinstance(done.edit, Merge)]


def copy(text: str) -> str:
    """Return a text with other punctuation and spaces."""
    for sign, other in ((", ", " , "), ("，", ", "), ("、", "、 "), (" ", "  ")):
        text = text.replace(sign, other)
    return f" {text.rstrip('.。।')} !"


def measured(embedder: Embedder, texts: Sequence[str]) -> tuple[int, int]:
    """Return the number of distinct texts that are merged, and of copies that are merged with their original."""
    wrong = merged(embedder, Context(), texts)
    both = merged(embedder, seed_context([("rules", text) for text in texts]), [copy(text) for text in texts])
    copies = sum(int(b[1:]) - int(a[1:]) == len(texts) for a, b in both)
    return len(wrong), copies


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--embedder", default="wordllama")
    reader.add_argument("--headroom", action="store_true", help="only measure other values of HEADROOM")
    reader.add_argument("--json", action="store_true", help="print one JSON line last")
    options = reader.parse_args()
    before, embedder = load_average(), open_embedder(options.embedder)
    rows: list[dict[str, Any]] = []
    if options.headroom:
        every = [text for name in CHOSEN_ON for text in TEXTS[name]]
        for headroom in range(40, 100, 5):
            scripts.HEADROOM = headroom / 100
            wrong = sum(len(merged(embedder, Context(), TEXTS[name])) for name in CHOSEN_ON)
            rows.append({"headroom": headroom / 100, "rules": len(every), "wrong": wrong})
            print(f"{headroom / 100:.2f}: {wrong} of {len(every)} merged wrongly")
    for name, texts in TEXTS.items() if not options.headroom else ():
        wrong, copies = measured(embedder, texts)
        rows.append({"language": name, "rules": len(texts), "wrong": wrong, "copies": copies})
        print(f"{name:<11} {wrong:>2} of {len(texts)} merged wrongly, {copies:>2} of {len(texts)} copies found")
    print_end("languages", {"embedder": options.embedder, "rows": rows}, [], before, options.json)


if __name__ == "__main__":
    main()
