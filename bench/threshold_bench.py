"""The cosine similarity from which two entries have the same meaning, measured for an embedder on pairs of entries.

    python bench/threshold_bench.py [--embedder NAME] [--json]

Each group has an entry, the same entry in other words, and an entry on the same subject with another meaning. The
groups are in several domains, with entries of one sentence, of several sentences, and of one form. "same" is the share
of the pairs with the same meaning that reach a threshold. "wrong" is the share of the entries that the threshold would
merge with an entry of another meaning: the nearest such entry of the domain, if de-duplication does not distinguish the
two by numbers, names or negations. The best threshold is the lowest with `wrong` at most `MOST_WRONG`, because a wrong
merge loses an entry, and a duplicate only costs some tokens.

Entries of one form ("If ..., ...") are similar by their form, and small models write only such entries.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
from measure import load_average, print_end

from practicum.engine.specifics import differ_in_particulars
from practicum.retrieval.vectors import open_embedder

MOST_WRONG = 0.02

Domains = Mapping[str, Sequence[Sequence[str]]]

SHORT: Domains = {
    "code": (
        (
            "If a test fails only when the whole suite runs, look for state that another test leaves behind.",
            "When a test passes alone and fails in the full suite, search for leftovers of the tests before it.",
            "If a test fails only on another machine, compare the versions of the libraries there.",
        ),
        (
            "Close every file and connection in a finally block or a context manager.",
            "Use context managers (or finally) so that files and connections are always closed.",
            "Open a file with an explicit encoding, because the default differs between systems.",
        ),
        (
            "Before you change a function, find all its callers and check what they rely on.",
            "Look up every place that calls a function, and what it expects, prior to editing the function.",
            "Before you rename a function, keep the old name as an alias for one release.",
        ),
        (
            "Never catch an exception that you do not handle: let it reach the caller.",
            "Exceptions you cannot deal with should propagate to the caller instead of being swallowed.",
            "Give every exception a message that says what the user can do about it.",
        ),
    ),
    "web": (
        (
            "To reach an item of a nested menu, hover over its parent first and wait until the submenu is shown.",
            "Items in nested menus appear once you move the mouse over the parent entry; do this, wait, then click.",
            "To choose from a long drop-down list, type the first letters of the item into it.",
        ),
        (
            "If a search gives no results, remove filters one at a time before you change the words.",
            "When nothing is found, drop the filters one after another first, and only then reword the query.",
            "If a search gives too many results, sort them by date and read the first page only.",
        ),
        (
            "Read the total on the confirmation page before you submit an order.",
            "Check the sum shown on the last page prior to placing the order.",
            "Copy the order number from the confirmation page after you have submitted an order.",
        ),
        (
            "When a page asks to log in again, go back to the page you came from after the login.",
            "After a repeated login, return to the page on which you were before.",
            "When a page asks to accept cookies, choose the smallest set and go on.",
        ),
    ),
    "finance": (
        (
            "Convert all amounts to one currency before you add them.",
            "Amounts in different currencies must be converted to the same currency prior to summing.",
            "Round amounts only in the last step, not before you add them.",
        ),
        (
            "Net income is revenue less costs, interest and taxes.",
            "Subtract costs, interest and tax from revenue to obtain the net income.",
            "Gross margin is revenue less the cost of goods sold, divided by revenue.",
        ),
        (
            "A figure in parentheses in a statement is negative.",
            "Brackets around a number in financial statements mean that it is below zero.",
            "A figure with a star in a statement is explained in the notes below it.",
        ),
        (
            "Take growth from the year before, not from the first year of the table.",
            "Growth is computed against the preceding year rather than the table's first year.",
            "Take the average of a balance from the beginning and the end of the year.",
        ),
    ),
    "writing": (
        (
            "Begin an answer to a complaint with what went wrong and an apology, then say what happens next.",
            "Reply to complaints by naming the mistake and apologising first; afterwards explain the next steps.",
            "End an answer to a complaint with the name and number of a person who can be reached.",
        ),
        (
            "Use short sentences with one idea each.",
            "Write one thought a sentence and keep sentences brief.",
            "Use the same word for the same thing throughout a text.",
        ),
        (
            "Put the result of a report into its first paragraph.",
            "The opening paragraph of a report should contain its conclusion.",
            "Put the tables of a report into an appendix.",
        ),
        (
            "Address the reader directly and leave out the passive voice.",
            "Speak to the reader as you, and prefer active verbs to passive ones.",
            "Leave out adjectives that promise more than the text shows.",
        ),
    ),
    "medicine": (
        (
            "Chest pain that gets worse with breathing points to the pleura rather than to the heart.",
            "If the pain in the chest increases on inhaling, think of pleurisy before a cardiac cause.",
            "Chest pain that gets worse with effort and better at rest points to the heart.",
        ),
        (
            "Ask about new drugs first when a rash appears suddenly.",
            "With a sudden rash, the first question is which medicines were started recently.",
            "Ask about contact with sick people first when a fever appears suddenly.",
        ),
        (
            "A fever after a journey to the tropics is malaria until it is excluded.",
            "Exclude malaria in every feverish patient who comes back from the tropics.",
            "Diarrhoea after a journey to the tropics mostly ends by itself within a week.",
        ),
        (
            "Measure blood sugar in every patient who is confused.",
            "Confused patients always need a glucose measurement.",
            "Measure the oxygen saturation in every patient who is short of breath.",
        ),
    ),
    "support": (
        (
            "If a card was charged twice, check whether one of the charges is only reserved before a refund.",
            "Before refunding a double charge, find out if one of the two payments is merely pending.",
            "If a card was declined, ask whether the bank has to approve payments abroad.",
        ),
        (
            "Ask for the serial number before you send a spare part.",
            "Spare parts are shipped only after the customer has given the serial number.",
            "Ask for a photo of the damage before you replace a parcel.",
        ),
        (
            "A customer who wants to cancel is offered a pause first.",
            "Offer pausing the subscription to everyone who asks to cancel it.",
            "A customer who wants to upgrade pays only the difference for the current month.",
        ),
        (
            "Messages about broken windows and locks go to the repair team at once.",
            "Forward reports of damaged locks or windows to the repair team immediately.",
            "Messages about lost keys go to the front desk at once.",
        ),
    ),
    "tools": (
        (
            "Look up the user's id with `search_users` before you call anything that takes an id.",
            "Functions that need an id require a prior `search_users` call to get it.",
            "Log in with `login` before you call anything that changes data.",
        ),
        (
            "`list_files` returns at most 100 names a page: ask for the next page until one is empty.",
            "Because `list_files` gives 100 names at a time, fetch page after page until nothing comes back.",
            "`read_file` returns bytes: decode them as UTF-8 before you search them.",
        ),
        (
            "Check the result of every tool call for an error before you use it.",
            "Never use what a tool returned without looking whether it reports an error.",
            "Call tools that change something only once, even if the answer is slow.",
        ),
        (
            "Sort the calendar by start time yourself, because the API returns events in the order of creation.",
            "Events arrive in creation order from the API, so order them by their start on your own.",
            "Add the time zone to the start of an event, because the API assumes UTC.",
        ),
    ),
    "arithmetic": (
        (
            "If a price is given after a discount, divide by what is left of the whole to find the price before it.",
            "The price before a discount is the reduced price divided by the remaining share.",
            "If two discounts follow each other, multiply what each of them leaves.",
        ),
        (
            "Write down the units of every quantity and check that they match at the end.",
            "Keep track of units throughout, and verify in the end that they fit.",
            "Estimate the size of the result first and compare it with the answer at the end.",
        ),
        (
            "Speed is distance divided by time.",
            "Divide the distance by the time to get the speed.",
            "Density is mass divided by volume.",
        ),
        (
            "When a question asks how many are left, subtract what was taken from what there was.",
            "For questions about the remainder, take the amount removed away from the initial amount.",
            "When a question asks how many more there are, subtract the smaller from the larger number.",
        ),
    ),
}  # fmt: skip

LONG: Domains = {
    "code": (
        (
            "Reproduce a reported error before you change anything. Write a test that fails with it, run it, and keep "
            "it. Only then read the code from the place where the error is raised towards the place where the wrong "
            "value is made, and mend it there.",
            "Start every bug fix with a failing test that shows the problem. Follow the wrong value back from where "
            "the exception occurs to its origin and correct it at that point, rather than at the symptom. The test "
            "stays in the suite.",
            "Before you open a pull request, run the linter and the type checker on the files that you changed. Write "
            "in the description what a user will notice, and why. Keep a change of behaviour and a renaming apart, "
            "because reviewers miss the one beside the other.",
        ),
        (
            "To add a field to a table: 1. write a migration that adds it as nullable; 2. release; 3. fill it for the "
            "old rows in batches; 4. make it required in a second migration. One migration that does everything locks "
            "the table for as long as the rows are rewritten.",
            "New columns come in two migrations. The first adds a nullable column; after the release a job fills the "
            "existing rows batch by batch; the second migration sets NOT NULL. Doing it at once would lock the table "
            "while all rows are being rewritten.",
            "To remove a field from a table: 1. stop reading it; 2. release; 3. stop writing it; 4. drop it in a "
            "migration after a second release. Servers of the old version still ask for it while the new ones start, "
            "and would fail.",
        ),
    ),
    "web": (
        (
            "Forms of several pages keep what was entered only if you leave a page by its own buttons. (1) Fill in all "
            "required fields, marked with a star. (2) Press Next and wait for the heading to change. (3) Use Back in "
            "the form, never that of the browser, which loses everything.",
            "In multi-step forms, move only with the form's Next and Back buttons: the browser's back button discards "
            "the input. Complete every starred field first, click Next, and make sure that a new heading is there "
            "before going on.",
            "Lists that load while you scroll hide most of their items. (1) Scroll to the end and wait until no new "
            "item appears. (2) Count the items and compare them with the number above the list. (3) Only then say that "
            "an item is missing.",
        ),
        (
            "To find the cheapest product of a category, open the category, set the sorting to price ascending, and "
            "check that the first product is in stock. Sponsored products stand above the sorted list and are not "
            "part of it; skip them.",
            "For the lowest price in a category: open it and sort by ascending price. Ignore the sponsored items on "
            "top, since they are not sorted, and take the first regular product that is available.",
            "To compare the ratings of two products, open both pages and read the number of reviews beside the stars. "
            "A rating of less than ten reviews says little; prefer the product with many reviews, even if its average "
            "is lower.",
        ),
    ),
    "finance": (
        (
            "Questions about the change of a ratio need both years. Compute the ratio of each year from the amounts in "
            "the table, subtract the older one from the newer one, and give the difference in percentage points. Do "
            "not divide the change of one amount by the other amount.",
            "When asked how a ratio changed, calculate it separately for the two years and then subtract: new minus "
            "old, in percentage points. Dividing one line's change by another line is a different quantity and wrong "
            "here.",
            "Questions about an average over several years need every year. Take the amounts from the table, add them, "
            "and divide by the number of years, counting both the first and the last. Do not take the average of the "
            "first and the last year alone.",
        ),
        (
            "Interest that is compounded monthly needs the monthly rate: divide the yearly rate by 12 and count the "
            "months. The final amount is principal * (1 + rate / 12) ** months. Check it against simple interest, "
            "which must be a little smaller.",
            "For monthly compounding use a twelfth of the annual rate and the number of months, i.e. "
            "principal * (1 + rate / 12) ** months. As a check: simple interest gives slightly less.",
            "A loan that is repaid in equal instalments has the payment principal * r / (1 - (1 + r) ** -n), with the "
            "rate r of one period and n periods. Check that n payments add up to more than the principal, and that "
            "the difference is the interest.",
        ),
    ),
    "tools": (
        (
            "To send money to a friend: first look the friend up in the contacts app, because the payment app does not "
            "know names. Then take the e-mail address of the contact, search for it with `search_users`, and pass the "
            "id that it returns to `create_transaction`.",
            "The payment app knows no names. Get the friend's e-mail from the contacts, use it in `search_users`, and "
            "give the resulting id to `create_transaction` in order to transfer the money.",
            "To split a bill among friends: add the shares up first and compare them with the bill. Then send a "
            "request to each of them with `create_request`, and put the name of the restaurant into the description, "
            "since requests without one are declined.",
        ),
        (
            "Paged calls end with a short page, not with an error:\n"
            "page = 0\nwhile batch := api.list(page_index=page, page_limit=20):\n    items += batch\n    page += 1\n"
            "Ask for the largest page that is allowed, and never stop after the first one.",
            "Never read just the first page. Loop until an empty batch comes back, with the biggest page size:\n"
            "items, page = [], 0\nwhile True:\n    batch = api.list(page_index=page, page_limit=20)\n"
            "    if not batch:\n        break\n    items += batch\n    page += 1",
            "Calls that fail for a moment are made again:\n"
            "for wait in (1, 2, 4):\n    try:\n        return api.get(id)\n    except Busy:\n        sleep(wait)\n"
            "Only calls that read are repeated; a call that changes something may have been carried out before it "
            "failed.",
        ),
    ),
    "support": (
        (
            "A customer who did not get a parcel: look at the tracking first. If it says delivered, ask about "
            "neighbours and the place where parcels are left, and open an inquiry after two days. If it has not moved "
            "for a week, send the order again and tell the carrier.",
            "Missing parcel: start with the tracking page. Marked as delivered means asking for neighbours or a safe "
            "place, followed by an inquiry two days later. No movement for a week means informing the carrier and "
            "shipping the order once more.",
            "A customer who got the wrong article: ask for a photo of the label first. If the number on it is that of "
            "the order, the warehouse took the wrong box; send the right one at once, and let the customer keep the "
            "other one if it costs less than its return.",
        ),
        (
            "When someone cannot log in, find out which message they see. A wrong password needs the link for a new "
            "one; a locked account opens by itself after an hour; an unknown address mostly means that they signed up "
            "with another one.",
            "Login problems depend on the message shown. Wrong password: send the reset link. Locked: wait one hour. "
            "Unknown address: the customer probably registered with a different e-mail.",
            "When someone cannot pay, find out how they want to pay. Cards from abroad need the approval of the bank; "
            "direct debit takes two days before it shows; vouchers cannot be combined with each other, which the page "
            "does not say.",
        ),
    ),
}  # fmt: skip

FORMS: Domains = {
    "desk": (
        (
            "If a visitor wants to keep a book longer, answer Green.",
            "If someone asks to renew a loan, answer Green.",
        ),
        (
            "If a visitor reports that a lamp does not work, answer Blue.",
            "If something in the building is broken, answer Blue.",
        ),
        (
            "If a visitor wants to join a reading group, answer Green.",
            "If someone would like to take part in a book club, answer Green.",
        ),
    ),
    "parcels": (
        (
            "If a customer's parcel is late, answer Depot.",
            "If a delivery has not arrived on time, answer Depot.",
        ),
        (
            "If a customer's parcel is damaged, answer Depot.",
            "If a box arrived broken, answer Depot.",
        ),
        (
            "If a customer wants an invoice, answer Office.",
            "If someone asks for a bill for the tax office, answer Office.",
        ),
        (
            "If a customer wants to change the address, answer Office.",
            "If somebody has moved and gives a new address, answer Office.",
        ),
    ),
    "limits": (
        (
            "If the amount is below the limit, approve the request.",
            "If a request does not exceed the limit, approve it.",
        ),
        (
            "If the amount is above the limit, pass the request on.",
            "If a request exceeds the limit, hand it over to someone else.",
        ),
    ),
    "questions": (
        (
            "If the question asks for a ratio, divide the first amount by the second.",
            "If a ratio is wanted, divide the first figure by the second one.",
        ),
        (
            "If the question asks for a change, subtract the older amount from the newer.",
            "If a change is wanted, take the older figure from the newer one.",
        ),
        (
            "If the question asks for a sum, add all amounts of the row.",
            "If a sum is wanted, add up the figures of the row.",
        ),
    ),
    "calls": (
        (
            "If a tool returns an error, read the message and call it again with the missing argument.",
            "If a call fails, look at its message and repeat it with the argument that was missing.",
        ),
        (
            "If a tool returns an empty list, ask for it again with a wider filter.",
            "If a call finds nothing, widen the filter and repeat it.",
        ),
        (
            "If a tool returns more than one page, ask for the next page until it is empty.",
            "If results have several pages, fetch them until one is empty.",
        ),
    ),
}  # fmt: skip

KINDS = {"of one sentence": SHORT, "of several": LONG, "of one form": FORMS}

THRESHOLDS = np.round(np.arange(0.5, 1.0, 0.01), 2)


def measured(embedder: str, domains: Domains) -> tuple[np.ndarray, np.ndarray]:
    """Return the similarity of each pair with the same meaning, and of each entry to the nearest entry of its domain
    that has another meaning and that de-duplication does not distinguish by its words."""
    same, other = list[float](), list[float]()
    for groups in domains.values():
        texts = [text for group in groups for text in group]
        # The first two entries of a group have the same meaning.
        says = [(n, max(at, 1)) for n, group in enumerate(groups) for at in range(len(group))]
        vectors = asyncio.run(open_embedder(embedder).embed(texts))
        similarity = vectors @ vectors.T
        pairs = [(i, j) for i in range(len(texts)) for j in range(len(texts)) if i != j]
        same += [similarity[i, j] for i, j in pairs if i < j and says[i] == says[j]]
        nearest = dict.fromkeys(range(len(texts)), 0.0)
        for i, j in pairs:
            if says[i] != says[j] and not differ_in_particulars(texts[i], texts[j]):
                nearest[i] = max(nearest[i], similarity[i, j])
        other += nearest.values()
    return np.array(same), np.array(other)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--embedder", default="wordllama")
    reader.add_argument("--json", action="store_true", help="print one JSON line last")
    options = reader.parse_args()
    before = load_average()
    kinds = {name: measured(options.embedder, pairs) for name, pairs in KINDS.items()}
    kinds["all"] = tuple(np.concatenate(part) for part in zip(*kinds.values(), strict=True))
    rows = [
        {"threshold": float(t), **{k: [float((x >= t).mean()) for x in pair] for k, pair in kinds.items()}}
        for t in THRESHOLDS
    ]
    print(f"{options.embedder}: " + ", ".join(f"{len(pair[0])} pairs {name}" for name, pair in kinds.items()) + "\n")
    print("threshold" + "".join(f"{name + ': same':>26}{'wrong':>7}" for name in kinds))
    for row in rows[::5]:
        print(f"{row['threshold']:9.2f}" + "".join(f"{row[name][0]:26.0%}{row[name][1]:7.0%}" for name in kinds))
    lowest = {name: next(row for row in rows if row[name][1] <= MOST_WRONG) for name in kinds}
    print(f"\nlowest with at most {MOST_WRONG:.0%} wrong:")
    for name, row in lowest.items():
        print(f"  {name}: {row['threshold']:.2f}, which finds {row[name][0]:.0%} of the pairs with the same meaning")
    thresholds = {name: row["threshold"] for name, row in lowest.items()}
    print_end("threshold", {"embedder": options.embedder, "lowest": thresholds, "rows": rows}, [], before, options.json)


if __name__ == "__main__":
    main()
